-- Remove a run-time cron entry, with its last slot, its pause and its runs.
--
-- KEYS 1 entries  2 last slots of all entries  3 version  4 paused entries  5 runs of the entry
-- ARGV 1 name  2 new version
-- Returns 1 if the entry existed, else 0.

if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('DEL', KEYS[5])
redis.call('SET', KEYS[3], ARGV[2])
return 1
