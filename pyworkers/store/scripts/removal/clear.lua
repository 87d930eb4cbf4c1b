-- Remove all jobs of a list or sorted set: move them to a key of the caller, which expires.
--
-- KEYS 1 list or sorted set  2 the caller's key
-- ARGV 1 life of the caller's key in s
-- Returns the number of jobs; after a lost reply, of those that the first call has moved.

local function size_of(key)
  local kind = redis.call('TYPE', key).ok
  return kind == 'none' and 0 or redis.call(kind == 'list' and 'LLEN' or 'ZCARD', key)
end

if size_of(KEYS[2]) == 0 and size_of(KEYS[1]) > 0 then
  redis.call('RENAME', KEYS[1], KEYS[2])
  redis.call('EXPIRE', KEYS[2], ARGV[1])
end
return size_of(KEYS[2])
