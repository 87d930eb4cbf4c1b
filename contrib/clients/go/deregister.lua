-- pyworkers deregister, wire 1
--
-- Deregister an incarnation that has stopped. If its lists still hold jobs, it stays in owners, without a
-- lease, so that a peer recovers them. In both cases it runs no suspect any more: none is to be charged.
--
-- KEYS 1 lease  2 owners  3 suspects  4 the turn to watch leases, which it passes on  5… its in-progress lists
-- ARGV 1 identity
-- Returns 1 if it was removed from owners, 0 if jobs are left.

-- Shared by the scripts below; the loader puts it in front of each.

-- ZADD of bytes that are already a member would merge two jobs into one. JSON ignores trailing spaces, so
-- spaces are appended until the bytes are new.
local function keep(zset, score, payload)
  while redis.call('ZADD', zset, 'NX', score, payload) == 0 do
    payload = payload .. ' '
  end
end

-- True if a key has this type or does not exist. An error in the middle of a script does not undo its earlier
-- writes, so check the type before a job is removed from its present key.
local function holds(key, wanted)
  local kind = redis.call('TYPE', key).ok
  return kind == wanted or kind == 'none'
end

-- Sidekiq trims `dead` by age and by size whenever it adds to it. Another program may have left a set of any size there, whose
-- trim would block Redis: then a script removes a thousand.
local has_trimmed = false
local function bury(dead, now, oldest, most, payload)
  keep(dead, now, payload)
  if redis.call('ZCARD', dead) - most <= 1000 then
    redis.call('ZREMRANGEBYSCORE', dead, '-inf', '(' .. oldest)
    redis.call('ZREMRANGEBYRANK', dead, 0, -most - 1)
  elseif not has_trimmed then
    has_trimmed = true
    redis.call('ZREMRANGEBYRANK', dead, 0, 999)
  end
end

-- Note that the slots of a cron entry up to a moment are dealt with; an earlier moment changes nothing.
local function begin_at(slots, name, moment)
  local last = tonumber(redis.call('HGET', slots, name) or '')
  if not (last and last >= tonumber(moment)) then
    redis.call('HSET', slots, name, moment)
  end
end

-- The time by Redis' clock in seconds, as text with microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. '.' .. string.format('%06d', time[2])
end

-- Have Redis refuse no later write of this script when maxmemory is reached, by one that needs no memory and changes
-- nothing: for what frees memory. Any sorted set will do, and a key of another type.
local function allow_writes(zset)
  redis.pcall('ZREMRANGEBYSCORE', zset, 1, 0)
end

-- Add a note that a job must not run; it expires after `life` seconds.
local function note(notes, jid, life)
  local now = clock()
  allow_writes(notes)
  redis.call('ZADD', notes, now, jid)
  redis.call('ZREMRANGEBYSCORE', notes, '-inf', math.floor(now) - life)
  redis.call('EXPIRE', notes, life)
end
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
