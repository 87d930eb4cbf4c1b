-- pyworkers recover, wire 1
--
-- Give the jobs of an incarnation without a lease back to their queues, a bounded number in each call, and fewer if they
-- are large: 500 of a megabyte would block Redis for seconds. If several peers call it, each job is moved once. The
-- tombstone shows the owner the loss, if it still runs.
--
-- The identity is removed from ``processes`` here, before its hash expires: the heartbeat of go-workers2 ends
-- for good when it finds a member without a hash. It reads the set first and the hashes after it, so the hash
-- itself stays until it expires.
--
-- Each job gets a mark and is counted in its entry (suspects.py): the number of dead servers that had it, and
-- the number of these deaths at which it was the one suspect that the server ran.
--
-- KEYS 1 lease  2 tombstone  3 owners  4 queues  5 processes  6 work  7 workers  8 signals  9 suspects
--      then for each queue: in-progress list, queue
-- ARGV 1 identity  2 life of the tombstone in s  3 most to move  4 life of the entries in s
--      then for each queue: its name
-- Returns -1 while the lease exists, else the number moved: call it again until that is 0. The call that finds the lists
-- empty removes the owner from owners. If a queue's key is not a list, its jobs stay in the in-progress list, and their
-- owner stays.

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
if redis.call('EXISTS', KEYS[1]) == 1 then
  return -1
end
-- First, because it needs no memory: when maxmemory is reached, Redis refuses a first write that does, but no
-- later one (exchange.lua).
redis.call('UNLINK', KEYS[6], KEYS[7], KEYS[8])
redis.call('SET', KEYS[2], '1', 'EX', ARGV[2])
if holds(KEYS[5], 'set') then
  redis.call('SREM', KEYS[5], ARGV[1])
end

local counts = holds(KEYS[9], 'hash')
local charged = counts and redis.call('HGET', KEYS[9], ARGV[1])

-- Count a job that is given back, and return its bytes with the mark. Bytes that do not end as an object does
-- are invalid: they go to dead without a run, and must get there unchanged.
local function count(raw)
  if not (counts and string.find(string.sub(raw, -1), '[}%s]')) then
    return raw
  end
  local last = #raw
  while string.byte(raw, last) == 9 do
    last = last - 1
  end
  local field = redis.sha1hex(string.sub(raw, 1, last))
  local entry = redis.call('HGET', KEYS[9], field) or ''
  local servers, deaths = string.match(entry, '^(%d+) (%d+)$')
  servers, deaths = (servers or 0) + 1, deaths or 0
  if field == charged then
    deaths = deaths + 1
    charged = nil
    redis.call('HDEL', KEYS[9], ARGV[1])
  end
  redis.call('HSET', KEYS[9], field, servers .. ' ' .. deaths)
  return last < #raw and raw or raw .. '\t'
end

local most, left = tonumber(ARGV[3]), 4194304
local moved = 0
local stuck = false
for q = 5, #ARGV do
  local from, to = KEYS[2 * q], KEYS[2 * q + 1]
  local any = false
  local fits = holds(to, 'list')
  stuck = stuck or not fits and redis.call('EXISTS', from) == 1
  while fits and moved < most and left > 0 do
    local raw = redis.call('LPOP', from)
    if not raw then
      break
    end
    redis.call('RPUSH', to, count(raw))
    moved, left = moved + 1, left - #raw
    any = true
  end
  if any then
    redis.call('SADD', KEYS[4], ARGV[q])
  end
end
if moved < most and left > 0 and not stuck then
  redis.call('HDEL', KEYS[3], ARGV[1])
  if charged then
    redis.call('HDEL', KEYS[9], ARGV[1])
  end
end
if moved > 0 and counts then
  redis.call('EXPIRE', KEYS[9], ARGV[4])
end
return moved
