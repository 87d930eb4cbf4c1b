-- pyworkers limited, wire 1
--
-- Take jobs from a queue with its own limits: no more than may start now, counted over all servers. Starts are
-- counted when their jobs are taken, and again when they are noted (NoteStart); running are the jobs in all in-progress
-- lists of the queue.
--
-- KEYS 1 queue  2 in-progress list  3 tombstone of this incarnation  4 owners  5 starts  6 limits
-- ARGV 1 identity  2 number of jobs wanted  3 a name that no other call has
--      4 most starts in a window, or 0  5 the window in s  6 most running, or 0
--      7 name of the rate  8 name of the limit of running jobs
-- Returns { the jobs, the seconds after which more may start or '' , '1' if a slot must be free first or '' },
--         or {} when a peer has recovered the lists of this incarnation: nothing was taken.

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
-- A job that is taken has started by then, as a rule; its start is noted when it is known.
local SOON_S = 0.025

if redis.call('EXISTS', KEYS[3]) == 1 then
  return {}
end
-- A job may only go to a registered owner: after a crash, peers search only the lists of registered owners.
if redis.call('HEXISTS', KEYS[4], ARGV[1]) == 0 then
  return redis.error_reply('UNREGISTERED this server is not registered yet, or no longer')
end
local wanted, rate, window, most = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local now = tonumber(clock())
local soon = string.format('%.6f', now + SOON_S)

local may, full = wanted, ''
if most > 0 then
  local running = 0
  for _, owner in ipairs(redis.call('HKEYS', KEYS[4])) do
    running = running + redis.call('LLEN', KEYS[1] .. ':' .. owner .. ':inprogress')
  end
  may = math.min(may, most - running)
  full = may < wanted and '1' or ''
end
local taken = 0
if rate > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now - window)
  taken = redis.call('ZCARD', KEYS[5])
  may = math.min(may, rate - taken)
end

local jobs = {}
for n = 1, may do
  -- Redis refuses the first write of a script when maxmemory is reached, but jobs must continue: see exchange.lua.
  redis.call('LTRIM', KEYS[2], 0, -1)
  local job = redis.call('RPOPLPUSH', KEYS[1], KEYS[2])
  if not job then
    break
  end
  jobs[n] = job
  if rate > 0 then
    redis.call('ZADD', KEYS[5], soon, ARGV[3] .. ':' .. n)
  end
end
if #jobs > 0 then
  if rate > 0 then
    redis.call('EXPIRE', KEYS[5], math.ceil(window) + 60)
    redis.call('HSET', KEYS[6], ARGV[7], ARGV[4] .. ' ' .. ARGV[5])
  end
  if most > 0 then
    redis.call('HSET', KEYS[6], ARGV[8], ARGV[6] .. ' 0')
  end
end
local wait = ''
if rate > 0 and #jobs < wanted and taken + #jobs >= rate then
  local oldest = tonumber(redis.call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2])
  -- A score may be anything; none of ours is later than this.
  wait = string.format('%.6f', math.min(oldest, now + SOON_S) + window - now)
end
return { jobs, wait, #jobs < may and '' or full }
