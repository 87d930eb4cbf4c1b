-- pyworkers ask, wire 1
--
-- Let a job of an in-progress list start if all its limits allow it; otherwise put it into schedule until its
-- turn, or leave it in the list if its turn is near. The presence of the job in the list is the receipt: asked again
-- after a lost reply, a job that holds its slots gets the same answer.
--
-- A limit has two keys. The members of the first are the starts of the last window (a rate), or the jobs that hold
-- a slot; the score is the time of the start, which is expected until it is noted (NoteStart). The members of the
-- second are the jobs that wait: for a rate with the time of their turn, else as `call_next` explains.
--
-- KEYS 1 in-progress list  2 schedule  3 limits  4 queues
--      then for each limit: both keys
-- ARGV 1 the job  2 the payload for schedule ('': the job)  3 queue and id of the job  4 holder
--      5 the longest wait in the list, in s
--      then for each limit: its name, the most starts or holders, the window in s (0: holders)
-- Returns { 'granted' }, { 'gone' } if the job is not in the list, { 'wait', seconds },
--         { 'limited', the score in schedule }, or { 'broken', the score, the key of a wrong type }.

-- For the scripts that make names of keys: the prefix of all keys, which is an argument after all others.
local PREFIX = table.remove(ARGV)

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
-- Shared by the scripts that free the slots of limits: the loader puts it in front of them.

-- Pass a free slot to the job that has waited longest: it leaves `schedule` for the head of its queue, and is
-- called from now on. A job that is no longer in `schedule` is skipped. Returns true if a job was called.
--
-- A member of `waiting` is the queue and the id of a job. Its score is the score of the job in `schedule`, exact to the
-- microsecond and therefore unique; for a called job it is the time of the call.
local function call_next(waiting, schedule, queues, now)
  while true do
    local first = redis.call('ZRANGEBYSCORE', waiting, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local member, score = first[1], first[2]
    if not member then
      return false
    end
    local queue, jid = string.match(member, '^(%S+) (.*)$')
    local plain = jid and string.find(jid, '^[%w-]+$')
    for _, job in ipairs(queue and redis.call('ZRANGEBYSCORE', schedule, score, score) or {}) do
      -- Another job may be due at the same time.
      if not plain or string.find(job, jid, 1, true) then
        local list = PREFIX .. 'queue:' .. queue
        redis.call('ZADD', waiting, now, member)
        if holds(list, 'list') then
          redis.call('SADD', queues, queue)
          redis.call('RPUSH', list, job)
          redis.call('ZREM', schedule, job)
        else
          redis.call('ZADD', schedule, now, job)
        end
        return true
      end
    end
    redis.call('ZREM', waiting, member)
  end
end

-- A job that is granted has started by then, as a rule; its start is noted when it is known.
local SOON_S = 0.025
-- The turns in a rate have this much more room than the window, in each window: for the time from the grant until
-- the start is noted. Otherwise more and more jobs would come too early.
local ROOM_S = 0.02
-- A job whose turn has come, or that was called, has this time to arrive before another takes its place.
local LATE_S = 1
-- A turn that is missed by this much is forgotten: its job was deleted.
local LOST_S = 60
-- A job that comes back while others are late waits for this long in the list: a third start would be one too many.
local AGAIN_S = 5
-- A job that waits for a slot is called when one is free. The score is for a lost call only, and so late that it
-- comes after all jobs in front of it, if each takes a minute.
local FAR_S, EACH_S = 3600, 60
-- No job waits this long: such a score is of another program.
local NEVER_S = 1e9

local raw, payload, waiter, holder = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if not holds(KEYS[2], 'zset') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a zset')
end
if not redis.call('LPOS', KEYS[1], raw) then
  return { 'gone' }
end
-- When maxmemory is reached, jobs must continue, because only they free memory: after a write that changes
-- nothing, Redis refuses no other one of a script.
redis.call('LTRIM', KEYS[1], 0, -1)

local near = tonumber(ARGV[5])
local text = clock()
local now = tonumber(text)
local soon = string.format('%.6f', now + SOON_S)

local function put_off(score)
  redis.call('LREM', KEYS[1], -1, raw)
  keep(KEYS[2], score, payload ~= '' and payload or raw)
end

local limits = {}
for n = 1, (#ARGV - 5) / 3 do
  local a = 3 * n + 3
  limits[n] = {
    name = ARGV[a], most = tonumber(ARGV[a + 1]), window = tonumber(ARGV[a + 2]),
    holders = KEYS[2 * n + 3], waiting = KEYS[2 * n + 4],
  }
  for _, key in ipairs({ limits[n].holders, limits[n].waiting }) do
    if not holds(key, 'zset') then
      local score = string.format('%.6f', now + LOST_S)
      put_off(score)
      return { 'broken', score, key }
    end
  end
end

-- The time at which a rate allows the start behind `ahead` others; nil if now.
local function turn(limit, ahead)
  local taken = redis.call('ZCARD', limit.holders)
  local place = taken + ahead - limit.most
  if place < 0 then
    return nil
  end
  local function start(rank)
    return math.min(tonumber(redis.call('ZRANGE', limit.holders, rank, rank, 'WITHSCORES')[2]), now + SOON_S)
  end
  -- Each start leaves the window after its length. So does, again, each start that takes its place.
  local rounds = math.floor(place / limit.most)
  local rank = place - rounds * limit.most
  local period = limit.window + ROOM_S
  local at = (rank < taken and start(rank) or now) + limit.window + rounds * period
  -- Starts that came together are followed by starts with even gaps.
  local even = (taken > 0 and start(0) or now) + limit.window + place * period / limit.most
  return math.max(at, even)
end

-- True if a rate allows the start; it notes the turn if not.
local function check_rate(limit)
  redis.call('ZREMRANGEBYSCORE', limit.holders, '-inf', now - limit.window)
  redis.call('ZREMRANGEBYSCORE', limit.waiting, '-inf', now - LOST_S)
  local mine = redis.call('ZSCORE', limit.waiting, waiter)
  local before = mine and '(' .. mine or '+inf'
  -- The jobs with an earlier turn have their place, unless they are late.
  if not turn(limit, redis.call('ZCOUNT', limit.waiting, now - LATE_S, before)) then
    return true
  end
  limit.at = turn(limit, redis.call('ZCOUNT', limit.waiting, '-inf', before))
  near = mine and AGAIN_S or near
  return false
end

-- True if there is a slot; perhaps of a called job that does not arrive.
local function check_slot(limit)
  local mine = tonumber(redis.call('ZSCORE', limit.waiting, waiter) or '')
  local called = redis.call('ZCOUNT', limit.waiting, '-inf', now)
  if mine and mine <= now then
    called = called - 1
  end
  if redis.call('ZCARD', limit.holders) + called < limit.most then
    return true
  end
  if redis.call('ZCARD', limit.holders) < limit.most then
    limit.robbed = redis.call('ZRANGEBYSCORE', limit.waiting, '-inf', now - LATE_S, 'LIMIT', 0, 1)[1]
  end
  return limit.robbed ~= nil
end

local slot, at
for _, limit in ipairs(limits) do
  if not redis.call('ZSCORE', limit.holders, holder) then
    if limit.window == 0 then
      slot = not check_slot(limit) and (slot or limit) or slot
    elseif not check_rate(limit) then
      at = math.max(at or 0, limit.at)
    end
  end
end

if not (slot or at) then
  for _, limit in ipairs(limits) do
    redis.call('HSET', KEYS[3], limit.name, limit.most .. ' ' .. limit.window)
    redis.call('ZREM', limit.waiting, waiter)
    if limit.robbed then
      redis.call('ZREM', limit.waiting, limit.robbed)
    end
    if not redis.call('ZSCORE', limit.holders, holder) then
      redis.call('ZADD', limit.holders, limit.window > 0 and soon or text, holder)
    end
    if limit.window > 0 then
      redis.call('EXPIRE', limit.holders, math.ceil(limit.window) + LOST_S)
    end
  end
  return { 'granted' }
end

local score
if slot then
  -- It waits for this one alone: the time of a turn in a rate would be a guess.
  local last = tonumber(redis.call('ZRANGE', slot.waiting, -1, -1, 'WITHSCORES')[2] or '') or 0
  last = last < now + NEVER_S and last or 0
  local each = EACH_S * redis.call('ZCARD', slot.waiting) / slot.most
  score = string.format('%.6f', math.max(now + FAR_S + each, last + 0.000002))
else
  score = string.format('%.6f', at)
end
local stays = not slot and at - now <= near
for _, limit in ipairs(limits) do
  redis.call('HSET', KEYS[3], limit.name, limit.most .. ' ' .. limit.window)
  if limit == slot or not slot and limit.at then
    -- A job that has waited for its turn in the list keeps its place before those with later turns.
    if not stays or not redis.call('ZSCORE', limit.waiting, waiter) then
      redis.call('ZADD', limit.waiting, score, waiter)
    end
    local last = redis.call('ZRANGE', limit.waiting, -1, -1, 'WITHSCORES')[2]
    redis.call('EXPIRE', limit.waiting, math.ceil(math.min(last - now, NEVER_S)) + FAR_S)
  elseif slot and limit.window > 0 then
    redis.call('ZREM', limit.waiting, waiter)
  elseif limit.window == 0 and not stays and redis.call('ZREM', limit.waiting, waiter) == 1 then
    -- It was called for a slot of this limit, and another limit has put it off: the next job gets that slot.
    call_next(limit.waiting, KEYS[2], KEYS[4], text)
  end
end
if stays then
  return { 'wait', string.format('%.6f', at - now) }
end
put_off(score)
return { 'limited', score }
