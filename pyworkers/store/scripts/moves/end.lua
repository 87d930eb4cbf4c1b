-- End a move, unless another process has parked more jobs for it.
--
-- KEYS 1 parked jobs  2 moves
-- ARGV 1 name of the queue  2 id of the move  3 number of its last portion
-- Returns 1 if it has ended now

local id, portion = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)')
if id ~= ARGV[2] or portion ~= ARGV[3] or redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end
return redis.call('HDEL', KEYS[2], ARGV[1])
