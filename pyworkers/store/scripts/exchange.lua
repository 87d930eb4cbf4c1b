-- pyworkers exchange, wire 1
--
-- Settle outcomes and take more jobs, for the queues of one group, in one round trip.
--
-- KEYS 1 retry  2 schedule  3 dead  4 tombstone of this incarnation  5 owners
--      then for each queue of the group: queue, in-progress list
--      then the keys of each effect
-- ARGV 1 number of jobs wanted  2 now  3 oldest score kept in dead  4 members kept in dead
--      5 identity  6 place of the last key of the queues  7 place of the last argument of the outcomes
--      8 number of the queues to take from
--      then in their order the place of each, counted from 1
--      then for each outcome: code and raw; for a fate that keeps the job also at and payload ('' is raw);
--      the code is the fate (outcome.py) plus 20 times the place of its queue
--      if 10 is added to the code, there are other arguments instead of raw, for a large job (extract.py):
--      length of the list, or else the outcome is not settled; probable index of the job; its length; its
--      first and last bytes; samples of it
--      a note (fate 7) has the effects alone: its job stays, and must be in the list
--      two numbers after the code: the job is a done member of a batch; they say how far from its end the id of
--      the batch and the id of the job begin
--      then for each effect: place of its outcome, counted from 1, name and arguments (protocol/effects)
-- Returns { places of the outcomes whose job was not in the list, counted from 1,
--           for each of the queues to take from the jobs taken; the last ones are left out if there are enough,
--           and, only if one of the next five is not empty:
--           the error that stopped the fetch, or '': outcomes settled and jobs taken before it count,
--           place of each queue whose keys Redis refuses, and the error, in turn,
--           places of the outcomes that are not settled, because of the keys of their queue, or because the list
--           of a large job has another length,
--           place and error of each effect that failed, in turn,
--           place of the first member and error of each batch that could not be counted, in turn }
--      or {} when a peer has recovered the lists of this incarnation: nothing was taken;
--      or an error, before anything was done, when the key of a sorted set has the wrong type.

-- For each fate that keeps a job in a sorted set: the place of its key in KEYS.
local zsets = { [1] = 1, [2] = 3, [5] = 2 }
local REQUEUE, NOTE = 4, 7

local refused, reasons = {}, {}
local function refuse(queue, reason)
  if not reasons[queue] then
    reasons[queue] = reason
    refused[#refused + 1] = queue
    refused[#refused + 1] = reason
  end
end

-- What an outcome with this code does; made for the codes that occur, once each. The fields have numbers,
-- because a table with names costs a microsecond more.
local LIST, ARGUMENTS, KEY, FATE, QUEUE, STUCK, LARGE, BATCH, JID = 1, 2, 3, 4, 5, 6, 7, 8, 9
local UNSURE = 'UNSURE'
local misplaced
local steps = {}
local function step_of(name)
  local number, batch, jid = string.match(name, '^(%d+) (%d+) (%d+)$')
  local code = tonumber(number or name)
  local fate = code % 10
  local large = code % 20 >= 10
  local queue = (code - code % 20) / 20
  local step = { KEYS[5 + 2 * queue], large and 7 or 2, false, fate, queue, false, large, batch and -batch, jid and -jid }
  local zset = zsets[fate]
  if zset then
    step[KEY], step[ARGUMENTS] = KEYS[zset], step[ARGUMENTS] + 2
    if not holds(step[KEY], 'zset') then
      misplaced = step[KEY]
    end
  elseif fate == REQUEUE then
    step[KEY], step[ARGUMENTS] = KEYS[4 + 2 * queue], step[ARGUMENTS] + 2
    if not holds(step[KEY], 'list') then
      step[STUCK] = 'WRONGTYPE ' .. step[KEY] .. ' is not a list'
    end
  end
  steps[name] = step
  return step
end

local first, last = 9 + ARGV[8], tonumber(ARGV[7])
local i = first
while i < last do
  local step = steps[ARGV[i]] or step_of(ARGV[i])
  if step[LARGE] and not step[STUCK] and redis.pcall('LLEN', step[LIST]) ~= tonumber(ARGV[i + 1]) then
    step[STUCK] = UNSURE
  end
  i = i + step[ARGUMENTS]
end
if misplaced then
  return redis.error_reply('WRONGTYPE ' .. misplaced .. ' is not a zset')
end

-- The bytes of the large job whose arguments follow ARGV i; nil if it is not in the list.
local EDGE, SAMPLES, SAMPLE = 1024, 32, 16
local function find(list, i)
  local hint, length = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local room = length - 2 * EDGE - SAMPLE
  local function at(index)
    local entry = redis.call('LINDEX', list, index)
    if not entry or #entry ~= length then
      return nil
    end
    if string.sub(entry, 1, EDGE) ~= ARGV[i + 4] or string.sub(entry, -EDGE) ~= ARGV[i + 5] then
      return nil
    end
    local samples = {}
    for n = 0, SAMPLES - 1 do
      local start = EDGE + math.floor(n * room / (SAMPLES - 1))
      samples[n + 1] = string.sub(entry, start + 1, start + SAMPLE)
    end
    return table.concat(samples) == ARGV[i + 6] and entry or nil
  end
  local found = at(hint)
  local index, number = -1, redis.call('LLEN', list)
  while not found and index >= -number do
    found = index ~= hint and at(index) or nil
    index = index - 1
  end
  return found
end

-- 1 if a job is in the list, false if not, or an error. A write that changes nothing (LTRIM) replaces the
-- removal: if Redis refuses all writes, it refuses this one, and it refuses none for lack of memory after it.
local function contains(list, raw)
  local place = redis.pcall('LPOS', list, raw, 'RANK', -1)
  if type(place) ~= 'number' then
    return place
  end
  local refusal = redis.pcall('LTRIM', list, 0, -1)
  return refusal.err and refusal or 1
end

-- The members that are done, by batch: the members of one batch are counted together.
local ID, MOST = 24, 4000 -- the length of an id (batch.py); the arguments of a command that Lua's stack holds
local counts, latest = {}, {}
local function count(batch, jid, ordinal)
  local members = latest[batch]
  if not members or #members == MOST then
    members = {}
    latest[batch] = members
    counts[#counts + 1] = { batch, ordinal, members }
  end
  members[#members + 1] = jid
end

local stale, left = {}, {}
local ordinal = 0
i = first
while i < last do
  ordinal = ordinal + 1
  local step = steps[ARGV[i]]
  local raw, key = ARGV[i + 1], step[KEY]
  -- The removal is the receipt: the steps after it happen once, even if the batch is sent several times.
  local removed = step[STUCK]
  if not removed then
    if step[LARGE] then
      raw = find(step[LIST], i)
    end
    if step[FATE] == NOTE then
      removed = raw and contains(step[LIST], raw) or 0
    else
      removed = raw and redis.pcall('LREM', step[LIST], -1, raw) or 0
    end
  end
  if removed == 1 then
    local batch, jid = step[BATCH], step[JID]
    if batch then
      count(string.sub(raw, batch, batch + ID - 1), string.sub(raw, jid, jid + ID - 1), ordinal)
    end
    if key then
      local after = i + step[ARGUMENTS]
      local at, payload = ARGV[after - 2], ARGV[after - 1]
      if payload == '' then
        payload = raw
      end
      if step[FATE] == REQUEUE then
        redis.call('RPUSH', key, payload)
      elseif step[FATE] == 2 then
        bury(key, ARGV[2], ARGV[3], ARGV[4], payload)
      else
        keep(key, at, payload)
      end
    end
  elseif removed == 0 then
    stale[#stale + 1] = ordinal
  elseif removed == UNSURE then
    left[#left + 1] = ordinal
  elseif step[STUCK] or string.find(removed.err, 'WRONGTYPE') then
    left[#left + 1] = ordinal
    refuse(step[QUEUE], step[STUCK] or removed.err)
  else
    -- Redis refuses all writes, and so it has refused the first one: nothing was done.
    return removed
  end
  i = i + step[ARGUMENTS]
end

-- Effects are applied only if the job was removed above. That removal is a write, so Redis refuses none of
-- them for lack of memory.
local failed, uncounted = {}, {}
if #counts > 0 then
  local batch = batches()
  for _, group in ipairs(counts) do
    local done, why = pcall(batch.count, group[1], group[3], 'done', '-1', '')
    if not done then
      uncounted[#uncounted + 1] = group[2]
      uncounted[#uncounted + 1] = reason_of(why)
    end
  end
end
if last < #ARGV then
  local unsettled = {}
  for _, places in ipairs({ stale, left }) do
    for _, place in ipairs(places) do
      unsettled[place] = true
    end
  end
  failed = apply_effects(ARGV[6] + 1, last + 1, function(place)
    return not unsettled[place]
  end)
end

-- When maxmemory is reached, Redis refuses the first write of a script if it could need memory, but no write
-- after another one. A move needs no memory, and jobs must continue, because only they free memory: so do a
-- write that changes nothing (LTRIM) first.
-- Redis 6.2 puts "@user_script: 54: " before the code.
local function take(queue, list)
  local raw = redis.pcall('RPOPLPUSH', queue, list)
  if type(raw) == 'table' and string.find(raw.err or '', '%f[%u]OOM ') then
    redis.call('LTRIM', list, 0, -1)
    raw = redis.pcall('RPOPLPUSH', queue, list)
  end
  return raw
end

local taken = {}
local function reply(err)
  if err or #refused > 0 or #left > 0 or #failed > 0 or #uncounted > 0 then
    return { stale, taken, err or '', refused, left, failed, uncounted }
  end
  return { stale, taken }
end

local wanted = tonumber(ARGV[1])
if wanted > 0 then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    return {}
  end
  -- A job may only go to a registered owner: after a crash, peers search only the lists of registered owners.
  if redis.call('HEXISTS', KEYS[5], ARGV[5]) == 0 then
    return reply('UNREGISTERED this server is not registered yet, or no longer')
  end
  for n = 9, first - 1 do
    local place = tonumber(ARGV[n])
    local queue, list = KEYS[4 + 2 * place], KEYS[5 + 2 * place]
    local jobs = {}
    taken[#taken + 1] = jobs
    for n = 1, wanted do
      local raw = take(queue, list)
      if not raw then
        break
      end
      if type(raw) == 'table' then
        refuse(place, raw.err)
        break
      end
      jobs[n] = raw
    end
    wanted = wanted - #jobs
    if wanted == 0 then
      break
    end
  end
end
return reply()
