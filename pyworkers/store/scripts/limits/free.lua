-- Free one slot of a limit, and call the job that has waited longest. The job that holds the slot continues.
--
-- KEYS 1 holders  2 waiting  3 schedule  4 queues
-- ARGV 1 holder
-- Returns 1 if it held a slot, else 0.

if not holds(KEYS[1], 'zset') or redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if holds(KEYS[2], 'zset') then
  call_next(KEYS[2], KEYS[3], KEYS[4], clock())
end
return 1
