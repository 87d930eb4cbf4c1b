-- Give the parked jobs of a move back to their places, and end the move. Other bytes in their list go to the queue.
--
-- KEYS 1 parked jobs  2 moves  3 queues  4 queue  5 schedule  6 retry
-- ARGV 1 name of the queue  2 id of the move  3 number of its last portion
-- Returns the number of entries; -1 if the move has ended or has parked others, -2 if a key is of another type: then
-- nothing was done

local id, portion = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)')
if id ~= ARGV[2] or portion ~= ARGV[3] then
  return -1
end
if not (holds(KEYS[1], 'list') and holds(KEYS[3], 'set') and holds(KEYS[4], 'list') and holds(KEYS[5], 'zset') and holds(KEYS[6], 'zset')) then
  return -2
end
local sets = { schedule = KEYS[5], retry = KEYS[6] }
-- ZADD fails for other scores that are too large, too small, or not a number.
local plain = { ['0'] = true, ['-0'] = true, inf = true, ['-inf'] = true }
local jobs = redis.call('LRANGE', KEYS[1], 0, -1)
-- The first one was to be popped next.
for place = #jobs, 1, -1 do
  local from, score, job = string.match(jobs[place], '^(%S+) (%S+) (.*)$')
  local number = tonumber(score or '')
  if sets[from] and (plain[score] or number and number ~= 0 and math.abs(number) < 1e99) then
    keep(sets[from], score, job)
  else
    redis.call('SADD', KEYS[3], ARGV[1])
    redis.call('RPUSH', KEYS[4], from == 'queue' and number and job or jobs[place])
  end
end
redis.call('UNLINK', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return #jobs
