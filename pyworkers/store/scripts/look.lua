-- Read keys that other programs may change, in one command. It only reads: a connection with CLIENT TRACKING
-- is then sent the next change of each key.
--
-- KEYS the keys to read
-- ARGV how to read each: 'first' (lowest member and score), 'members', 'notes' (number, latest with its score),
--      'text', 'length', 'active' (server of an ordered queue), 'since' (when the next job of a queue was
--      enqueued, as the job has it (JSON); an empty text if that is not among the last bytes of the job), 'head'
--      (the next job of a queue; an empty text if it is large)
-- Returns the replies in the order of KEYS; an error is the reply of a key that cannot be read.

-- Every producer writes the time after the arguments. A job may have megabytes; a pattern reads each byte.
local tail = 4096
-- A viewer reads a head each second.
local largest = 65536

local reads = {
  first = function(key)
    return redis.pcall('ZRANGE', key, 0, 0, 'WITHSCORES')
  end,
  members = function(key)
    return redis.pcall('SMEMBERS', key)
  end,
  notes = function(key)
    local number = redis.pcall('ZCARD', key)
    if type(number) ~= 'number' then
      return number
    end
    return {number, redis.pcall('ZRANGE', key, -1, -1, 'WITHSCORES')}
  end,
  text = function(key)
    return redis.pcall('GET', key)
  end,
  active = function(key)
    return redis.pcall('HGET', key, 'identity')
  end,
  length = function(key)
    return redis.pcall('LLEN', key)
  end,
  head = function(key)
    local raw = redis.pcall('LINDEX', key, -1)
    return type(raw) == 'string' and #raw > largest and '' or raw
  end,
  since = function(key)
    local raw = redis.pcall('LINDEX', key, -1)
    if type(raw) ~= 'string' then
      return raw
    end
    return string.match(raw:sub(-tail), '.*"enqueued_at"%s*:%s*("?[^,}"]*"?)') or ''
  end,
}

local replies = {}
for i, key in ipairs(KEYS) do
  replies[i] = reads[ARGV[i]](key)
end
return replies
