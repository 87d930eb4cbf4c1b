-- pyworkers release, wire 1
--
-- Give up an ordered queue, so that another server becomes active at once, unless a job of it is still in the
-- in-progress list.
--
-- KEYS 1 state of the order (hash)  2 in-progress list
-- ARGV 1 identity
-- Returns 1 if the queue is free now, else 0.

if redis.call('EXISTS', KEYS[2]) == 1 or redis.call('HGET', KEYS[1], 'identity') ~= ARGV[1] then
  return 0
end
return redis.call('HDEL', KEYS[1], 'identity')
