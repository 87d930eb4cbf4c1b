-- Settle outcomes and take more jobs, in one round trip.
--
-- KEYS 1 queue  2 in-progress list  3 retry  4 schedule  5 dead  6 tombstone of this incarnation  7 owners
-- ARGV 1 number of jobs wanted  2 now  3 oldest score kept in dead  4 members kept in dead
--      5 identity  then for each outcome: fate and raw; at and payload ('' is raw), too, unless nothing is left
--      of the job (0, 3 and 6); the fates are those of outcome.py
-- Returns { places of the outcomes whose job was not in the list, counted from 1,  jobs taken,
--           the error that ended the taking, if any: what was settled and taken before it counts }
--      or {} when the lists of this incarnation were recovered by somebody else: nothing was taken.

local stale = {}
local ordinal = 0
local i = 6
while i < #ARGV do
  ordinal = ordinal + 1
  local fate, raw, at, payload = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local gone = fate == '0' or fate == '3' or fate == '6'
  i = i + (gone and 2 or 4)
  -- The removal is the receipt: whatever follows happens once, however often the batch is sent.
  if redis.call('LREM', KEYS[2], -1, raw) == 0 then
    stale[#stale + 1] = ordinal
  elseif not gone then
    if payload == '' then
      payload = raw
    end
    if fate == '1' then
      keep(KEYS[3], at, payload)
    elseif fate == '5' then
      keep(KEYS[4], at, payload)
    elseif fate == '4' then
      redis.call('RPUSH', KEYS[1], payload)
    else
      bury(KEYS[5], ARGV[2], ARGV[3], ARGV[4], payload)
    end
  end
end

-- With maxmemory reached, Redis refuses a script its first write if that could need memory, but none after
-- another write. A move needs none, and jobs must go on, for only they make room: so write nothing, first.
local function take()
  local raw = redis.pcall('RPOPLPUSH', KEYS[1], KEYS[2])
  if type(raw) == 'table' and string.find(raw.err or '', '^%-?OOM') then
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
