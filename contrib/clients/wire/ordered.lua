-- pyworkers ordered, wire 1
--
-- Take the next job of an ordered queue, for the one server that is active there; become that server if there is
-- none. The active server keeps the queue while its lease exists, and for as long after it as its in-progress
-- list holds a job: recovery must return that job to the head of the queue first.
--
-- KEYS 1 state of the order (hash)  2 queue  3 in-progress list  4 tombstone of this incarnation  5 owners  6 paused
--      7 lease of the server that is active as far as known  8 its in-progress list
-- ARGV 1 identity  2 the server that is active as far as known, or ''  3 name of the queue
-- Returns a word, the fencing token, a number of ms, and the job or the active server:
--   job      the job is in the in-progress list. If a job is there already, its reply was lost: it is returned
--   empty    no job waits
--   wait     the job at the head has failed, and waits for this many ms
--   paused   the queue is paused
--   standby  another server is active, and its lease expires in this many ms
--   expired  its lease has expired, and its job is not recovered yet
--   other    ARGV 2 is not the active server
--   lost     a peer has recovered the lists of this incarnation

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
local order, queue, list = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXISTS', KEYS[4]) == 1 then
  return { 'lost', 0, 0, '' }
end
if redis.call('HEXISTS', KEYS[5], ARGV[1]) == 0 then
  return redis.error_reply('UNREGISTERED this server is not registered yet, or no longer')
end
local now = redis.call('TIME')
local active = redis.call('HGET', order, 'identity') or ''
-- Any program may write into the hash: an invalid number counts as none.
local fence = tonumber(string.match(redis.call('HGET', order, 'fence') or '', '^%d+$')) or 0
if fence >= 2 ^ 53 then
  fence = 0
end
if active ~= ARGV[1] then
  if active ~= ARGV[2] then
    return { 'other', fence, 0, active }
  end
  if active ~= '' then
    local lease = redis.call('PTTL', KEYS[7])
    if lease ~= -2 then
      return { 'standby', fence, lease, active }
    end
    if redis.call('EXISTS', KEYS[8]) == 1 then
      return { 'expired', fence, 0, active }
    end
  end
end
if redis.call('SISMEMBER', KEYS[6], ARGV[3]) == 1 then
  return { 'paused', fence, 0, '' }
end
if active ~= ARGV[1] or fence == 0 then
  -- From the clock, so that the token grows even if Redis has lost the hash.
  fence = math.max(fence + 1, tonumber(now[1]))
  redis.call('HSET', order, 'identity', ARGV[1], 'fence', string.format('%d', fence))
end
local raw = redis.call('LINDEX', list, -1)
if raw then
  return { 'job', fence, 0, raw }
end
local head = redis.call('LINDEX', queue, -1)
if not head then
  return { 'empty', fence, 0, '' }
end
local waits = redis.call('HMGET', order, 'until', 'head')
if waits[1] then
  local left = (tonumber(waits[1]) or 0) - (now[1] * 1000 + math.floor(now[2] / 1000))
  if left > 0 and redis.sha1hex(head) == waits[2] then
    return { 'wait', fence, left, '' }
  end
  redis.call('HDEL', order, 'until', 'head')
end
-- As in exchange.lua: a move needs no memory, but Redis refuses it as the first write when maxmemory is reached.
raw = redis.pcall('RPOPLPUSH', queue, list)
if type(raw) == 'table' and string.find(raw.err or '', '%f[%u]OOM ') then
  redis.call('LTRIM', list, 0, -1)
  raw = redis.call('RPOPLPUSH', queue, list)
end
return type(raw) == 'table' and raw or { 'job', fence, 0, raw }
