-- Have a slot of a cron entry for oneself, while a worker makes its jobs. Another server may take it over when the
-- claim has expired. A claim does not prevent the slot from being fired (fire.lua).
--
-- KEYS 1 slot  2 run-time entries  3 paused entries
-- ARGV 1 identity  2 life of the claim in ms  3 name of the entry  4 definition of a run-time entry, or ''
-- Returns 0 if the slot is this server's; -1 if it is dealt with, or the entry is paused or changed; else the ms for
-- which another server has it.

local held = redis.call('GET', KEYS[1])
if held == '1' or redis.call('SISMEMBER', KEYS[3], ARGV[3]) == 1 then
  return -1
end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[2], ARGV[3]) ~= ARGV[4] then
  return -1
end
if held and held ~= ARGV[1] then
  return math.max(1, redis.call('PTTL', KEYS[1]))
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 0
