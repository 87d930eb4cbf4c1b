-- Settle outcomes and take more jobs, in one round trip.
--
-- KEYS 1 queue  2 in-progress list  3 retry  4 schedule  5 dead  6 tombstone of this incarnation  7 owners
-- ARGV 1 number of jobs wanted  2 now  3 oldest score kept in dead  4 members kept in dead
--      5 identity  then for each outcome: fate and raw; at and payload ('' is raw), too, if the job goes
--      somewhere; the fates are those of outcome.py
-- Returns { places of the outcomes whose job was not in the list, counted from 1,  jobs taken,
--           the error that ended the taking, if any: what was settled and taken before it counts }
--      or {} when the lists of this incarnation were recovered by somebody else: nothing was taken;
--      or an error, before anything was done, when a key holds something else than it should.

-- Where the job of a fate goes: the place in KEYS, and what must be there. Of other fates nothing is left.
local targets = { ['1'] = { 3, 'zset' }, ['2'] = { 5, 'zset' }, ['4'] = { 1, 'list' }, ['5'] = { 4, 'zset' } }

local i = 6
while i < #ARGV do
  local target = targets[ARGV[i]]
  if target and not holds(KEYS[target[1]], target[2]) then
    return redis.error_reply('WRONGTYPE ' .. KEYS[target[1]] .. ' is no ' .. target[2])
  end
  i = i + (target and 4 or 2)
end

local stale = {}
local ordinal = 0
i = 6
while i < #ARGV do
  ordinal = ordinal + 1
  local fate, raw, at, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local target = targets[fate]
  i = i + (target and 4 or 2)
  -- The removal is the receipt: whatever follows happens once, however often the batch is sent.
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

-- With maxmemory reached, Redis refuses a script its first write if that could need memory, but none after
-- another write. A move needs none, and jobs must go on, for only they make room: so write nothing, first.
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
local wanted = tonumber(ARGV[1])
if wanted > 0 then
  if redis.call('EXISTS', KEYS[6]) == 1 then
    return {}
  end
  -- A job may only go to an owner that peers know of, or nobody would look for it after a crash.
  if redis.call('HEXISTS', KEYS[7], ARGV[5]) == 0 then
    return { stale, jobs, 'UNREGISTERED this server is not registered yet, or no longer' }
  end
  for n = 1, wanted do
    local raw = take()
    if not raw then
      break
    end
    if type(raw) == 'table' then
      return { stale, jobs, raw.err }
    end
    jobs[n] = raw
  end
end
return { stale, jobs }
