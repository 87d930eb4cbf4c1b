-- Settle outcomes and take more jobs, in one round trip.
--
-- KEYS 1 queue  2 in-progress list  3 retry  4 schedule  5 dead  6 tombstone of this incarnation  7 owners
--      8… the keys of each effect
-- ARGV 1 number of jobs wanted  2 now  3 oldest score kept in dead  4 members kept in dead
--      5 identity  6 place of the last argument of the outcomes
--      then for each outcome: fate and raw; for a fate that keeps the job also at and payload ('' is raw);
--      the fates are those of outcome.py
--      then for each effect: place of its outcome, counted from 1, name and arguments (effects.py)
-- Returns { places of the outcomes whose job was not in the list, counted from 1,  jobs taken,
--           the error that stopped the fetch, if any: outcomes settled and jobs taken before it count,
--           if effects failed ('' stands for no error then): place and error of each, in turn }
--      or {} when a peer has recovered the lists of this incarnation: nothing was taken;
--      or an error, before anything was done, when a key has the wrong type.

-- For each fate that keeps the job: the place of its key in KEYS, and the type of that key. The other fates
-- only remove the job.
local targets = { ['1'] = { 3, 'zset' }, ['2'] = { 5, 'zset' }, ['4'] = { 1, 'list' }, ['5'] = { 4, 'zset' } }

local last = tonumber(ARGV[6])
local i = 7
while i < last do
  local target = targets[ARGV[i]]
  if target and not holds(KEYS[target[1]], target[2]) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[target[1]] .. ' is no ' .. target[2])
  end
  i = i + (target and 4 or 2)
end

local stale = {}
local ordinal = 0
i = 7
while i < last do
  ordinal = ordinal + 1
  local fate, raw, at, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local target = targets[fate]
  i = i + (target and 4 or 2)
  -- The removal is the receipt: the steps after it happen once, even if the batch is sent several times.
  if redis.call('LREM', KEYS[2], -1, raw) == 0 then
    stale[#stale + 1] = ordinal
  elseif target then
    local key = KEYS[target[1]]
    if payload == '' then
      payload = raw
    end
    if fate == '4' then
      redis.call('RPUSH', key, payload)
    elseif fate == '2' then
      bury(key, ARGV[2], ARGV[3], ARGV[4], payload)
    else
      keep(key, at, payload)
    end
  end
end

-- Effects are applied only if the job was removed above. That removal is a write, so Redis refuses none of
-- them for lack of memory.
local failed = {}
if last < #ARGV then
  -- Name → number of keys, number of arguments, function; k and a are the places of the first of each.
  local effects = {
    Unlock = { 1, 1, function(k, a)
      if redis.call('GET', KEYS[k]) == ARGV[a] then
        redis.call('DEL', KEYS[k])
      end
    end },
    FreeSlot = { 1, 1, function(k, a)
      redis.call(redis.call('TYPE', KEYS[k]).ok == 'set' and 'SREM' or 'ZREM', KEYS[k], ARGV[a])
    end },
    CountOut = { 3, 3, function(k, a)
      -- Check the types first: otherwise the member would be counted out, and then the push would fail.
      if not (holds(KEYS[k + 1], 'list') and holds(KEYS[k + 2], 'set')) then
        error({ err = 'WRONGTYPE ' .. KEYS[k + 1] .. ' or ' .. KEYS[k + 2] .. ' has the wrong type' })
      end
      if redis.call('HEXISTS', KEYS[k], ARGV[a]) == 1 and redis.call('HINCRBY', KEYS[k], ARGV[a], -1) == 0 then
        redis.call('SADD', KEYS[k + 2], ARGV[a + 1])
        redis.call('LPUSH', KEYS[k + 1], ARGV[a + 2])
      end
    end },
    StoreValue = { 1, 2, function(k, a)
      -- SET itself replaces a key of any type.
      if not holds(KEYS[k], 'string') then
        error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' is no string' })
      end
      redis.call('SET', KEYS[k], ARGV[a], 'EX', ARGV[a + 1])
    end },
    DeleteKey = { 1, 0, function(k)
      redis.call('DEL', KEYS[k])
    end },
  }
  local late = {}
  for _, place in ipairs(stale) do
    late[place] = true
  end
  local place, k, a = 0, 8, last + 1
  while a < #ARGV do
    local keys, args, apply = unpack(effects[ARGV[a + 1]])
    place = place + 1
    if not late[tonumber(ARGV[a])] then
      local done, why = pcall(apply, k, a + 2)
      if not done then
        failed[#failed + 1] = place
        failed[#failed + 1] = type(why) == 'table' and why.err or tostring(why)
      end
    end
    k = k + keys
    a = a + 2 + args
  end
end

-- When maxmemory is reached, Redis refuses the first write of a script if it could need memory, but no write
-- after another one. A move needs no memory, and jobs must continue, because only they free memory: so do a
-- write that changes nothing (LTRIM) first.
-- Redis 6.2 puts "@user_script: 54: " before the code.
local function take()
  local raw = redis.pcall('RPOPLPUSH', KEYS[1], KEYS[2])
  if type(raw) == 'table' and string.find(raw.err or '', '%f[%u]OOM ') then
    redis.call('LTRIM', KEYS[2], 0, -1)
    raw = redis.pcall('RPOPLPUSH', KEYS[1], KEYS[2])
  end
  return raw
end

local jobs = {}
local function reply(err)
  if #failed > 0 then
    return { stale, jobs, err or '', failed }
  end
  return { stale, jobs, err }
end

local wanted = tonumber(ARGV[1])
if wanted > 0 then
  if redis.call('EXISTS', KEYS[6]) == 1 then
    return {}
  end
  -- A job may only go to a registered owner: after a crash, peers search only the lists of registered owners.
  if redis.call('HEXISTS', KEYS[7], ARGV[5]) == 0 then
    return reply('UNREGISTERED this server is not registered yet, or no longer')
  end
  for n = 1, wanted do
    local raw = take()
    if not raw then
      break
    end
    if type(raw) == 'table' then
      return reply(raw.err)
    end
    jobs[n] = raw
  end
end
return reply()
