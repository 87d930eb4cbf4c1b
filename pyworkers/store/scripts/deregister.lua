-- pyworkers deregister, wire 1
--
-- Deregister an incarnation that has stopped. If its lists still hold jobs, it stays in owners, without a
-- lease, so that a peer recovers them. In both cases it runs no suspect any more: none is to be charged.
--
-- KEYS 1 lease  2 owners  3 suspects  4 the turn to watch leases, which it passes on  5… its in-progress lists
-- ARGV 1 identity
-- Returns 1 if it was removed from owners, 0 if jobs are left.

redis.call('DEL', KEYS[1])
if holds(KEYS[3], 'hash') then
  redis.call('HDEL', KEYS[3], ARGV[1])
end
if holds(KEYS[4], 'string') and redis.call('GET', KEYS[4]) == ARGV[1] then
  redis.call('DEL', KEYS[4])
end
for n = 5, #KEYS do
  if redis.call('EXISTS', KEYS[n]) == 1 then
    return 0
  end
end
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
