-- Add or replace a run-time cron entry. It has no slots before this moment.
--
-- KEYS 1 entries  2 last slots of all entries  3 version
-- ARGV 1 name  2 definition  3 now in s  4 new version
--      5 '1' if the entry must exist, '0' if it must not, '' for either
-- Returns 1 if it was written, 0 if the entry does (not) exist.

if ARGV[5] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) ~= tonumber(ARGV[5]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
begin_at(KEYS[2], ARGV[1], ARGV[3])
redis.call('SET', KEYS[3], ARGV[4])
return 1
