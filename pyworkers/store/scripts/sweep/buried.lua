-- Find the jobs of one page of `dead` of which something still waits for the end: a lock, a batch, a status, the
-- run of a cron entry, a checkpoint. Another program has moved them there, or a server that could not read them.
--
-- KEYS 1 turn  2 missing  3 dead
-- ARGV 1 token  2 life of the turn in ms  3 cursor, '0' at first
--      then the texts of which such a job contains one
-- Returns { next cursor, then for each job: its score, its bytes, and its fields without the arguments, which servers may be
-- unable to read }, or nothing without the turn.

if not sweeping() then
  return nil
end
local MOST_JOBS, MOST_BYTES = 1000, 1048576
local DEFAULT_TRACK_S = 3600
local batch = batches()
local own = PREFIX .. 'pyworkers:'
local now = tonumber(batch.now())

local function marked(raw)
  for n = 4, #ARGV do
    if string.find(raw, ARGV[n], 1, true) then
      return true
    end
  end
end

-- For each field: true if what it names has yet to learn of the end. A key of the wrong type never learns.
local waits = {
  unique_key = function(name, jid, job)
    return type(name) == 'string' and job.unique_until ~= 'expiry' and redis.pcall('GET', own .. 'unique:' .. name) == jid
  end,
  batch = function(id, jid)
    local key = type(id) == 'string' and batch.key(id)
    return key
      and redis.pcall('HEXISTS', key, 'open') == 1
      and (
        redis.pcall('SISMEMBER', key .. ':members', jid) == 1
        or redis.pcall('SISMEMBER', key .. ':failed', jid) == 1
        or redis.pcall('HGET', key .. ':ended', jid) == 'missing'
      )
  end,
  track = function(seconds, jid, _, score)
    if seconds == '' or type(seconds) == 'table' and not next(seconds) then
      return false
    end
    local state = redis.pcall('HGET', own .. 'job:' .. jid, 'state')
    if type(state) == 'string' then
      return not ENDED[state]
    end
    -- No status was written, or it has expired.
    return state == false and now - score < (type(seconds) == 'number' and seconds or DEFAULT_TRACK_S)
  end,
  cron = function(about, jid)
    if type(about) ~= 'table' or type(about.name) ~= 'string' or type(about.slot) ~= 'number' then
      return false
    end
    local run = string.format('%.0f ', about.slot) .. jid
    local known, facts = pcall(cjson.decode, redis.pcall('HGET', own .. 'cron-runs:' .. about.name, run))
    return known and type(facts) == 'table' and not ENDED[facts.state]
  end,
  checkpoint = function(_, jid)
    return redis.pcall('EXISTS', PREFIX .. 'it-' .. jid) == 1
  end,
}

-- The fields of such a job without its arguments, as JSON; nil for another one.
local function unsettled(raw, score)
  local known, job = pcall(cjson.decode, raw)
  if not known or type(job) ~= 'table' or type(job.jid) ~= 'string' then
    return nil
  end
  for field, check in pairs(waits) do
    if job[field] and job[field] ~= cjson.null and check(job[field], job.jid, job, score) then
      job.args = nil
      local written, facts = pcall(cjson.encode, job)
      return written and facts or nil
    end
  end
end

local reply = { '0' }
if redis.call('TYPE', KEYS[3]).ok ~= 'zset' then
  return reply
end
reply[1] = scan(KEYS[3], ARGV[3], MOST_JOBS, MOST_BYTES, function(raw, score)
  local facts = marked(raw) and unsettled(raw, tonumber(score))
  if facts then
    reply[#reply + 1] = score
    reply[#reply + 1] = raw
    reply[#reply + 1] = facts
  end
end)
return reply
