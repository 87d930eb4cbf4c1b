-- Take the turn to sweep, if there is anything that a sweep checks.
--
-- KEYS 1 turn  2 missing  3 locks  4 batches  5 dead  6 awaited
-- ARGV 1 token  2 life of the turn in ms
-- Returns -1 if the caller has the turn; the ms until it is free, if another has it; 0 if there is nothing.

local left = redis.call('PTTL', KEYS[1])
if left ~= -2 then
  return math.max(left, 1)
end
if redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]) == 0 then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return -1
