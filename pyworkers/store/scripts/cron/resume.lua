-- Resume a paused cron entry. The slots during the pause do not count as missed.
--
-- KEYS 1 paused entries  2 last slots of all entries  3 version
-- ARGV 1 name  2 now in s  3 new version
-- Returns 1 if it was paused, else 0.

if redis.call('SREM', KEYS[1], ARGV[1]) == 0 then
  return 0
end
begin_at(KEYS[2], ARGV[1], ARGV[2])
redis.call('SET', KEYS[3], ARGV[3])
return 1
