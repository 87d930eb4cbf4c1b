-- Remove all jobs of a list or sorted set: move them to a key of the caller, which expires.
--
-- KEYS 1 list or sorted set  2 the caller's key
-- ARGV 1 life of the caller's key in s
-- Returns the number of jobs.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' then
  return 0
end
local jobs = redis.call(kind == 'list' and 'LLEN' or 'ZCARD', KEYS[1])
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('EXPIRE', KEYS[2], ARGV[1])
return jobs
