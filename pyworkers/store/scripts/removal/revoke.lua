-- Remove one copy of a cancelled job from the key in which it waits, and with it the note, because a later
-- job with the same id may run.
--
-- KEYS 1 list or sorted set  2 notes  3 counter  4 counter of the day  then the keys of each effect
-- ARGV 1 'list' or 'zset'  2 jid  3 the job  4 life of the day's counter in s
--      then for each effect: 1, name and arguments (protocol/effects)
-- Returns the number removed.

local removed
if ARGV[1] == 'list' then
  removed = redis.call('LREM', KEYS[1], 1, ARGV[3])
else
  removed = redis.call('ZREM', KEYS[1], ARGV[3])
end
if removed == 1 then
  redis.pcall('ZREM', KEYS[2], ARGV[2])
  redis.pcall('INCR', KEYS[3])
  redis.pcall('INCR', KEYS[4])
  redis.pcall('EXPIRE', KEYS[4], ARGV[4])
  apply_effects(5, 5, function()
    return true
  end)
end
return removed
