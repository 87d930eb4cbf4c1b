-- Shared by the scripts that end waiting jobs: the loader puts it in front of them.

-- How long the runs of a cron entry are kept (runs.py).
local RUNS_LIFE_S = 34560000

-- The seconds for which the status of a job is kept after its end; 0: it has none (track.py).
local function tracked(job)
  local value = job.track
  if type(value) == 'number' then
    return value > 0 and math.floor(math.min(math.max(1, value), 1000000000)) or 0
  elseif type(value) == 'table' then
    return next(value) and 3600 or 0
  end
  return (value == true or type(value) == 'string' and value ~= '') and 3600 or 0
end

-- The end of a waiting job that was removed: it is 'cancelled', or 'replaced' by a newer one. Does what the rules for such an
-- end do (protocol/flow/rules.py); what Redis refuses is left to the sweep.
local function end_waiting(job, jid, kind, batch)
  local now, own = clock(), PREFIX .. 'pyworkers:'
  local queue = type(job.queue) == 'string' and job.queue or ''
  local life = tracked(job)
  if life > 0 then
    local attempt = type(job.retry_count) == 'number' and string.format('%d', job.retry_count + 1) or '0'
    local fields = { 'state', 'cancelled', 'queue', queue, 'attempt', attempt, 'finished_at', now, 'error', '' }
    redis.pcall('HSET', own .. 'job:' .. jid, unpack(fields))
    redis.pcall('EXPIRE', own .. 'job:' .. jid, life)
    local answer = '{"state":"cancelled","error_class":"","error":""}'
    redis.pcall('XADD', own .. 'result:' .. jid, 'MAXLEN', 1, '*', 'v', answer)
    redis.pcall('EXPIRE', own .. 'result:' .. jid, life)
  end
  if type(job.unique_key) == 'string' and job.unique_until ~= 'expiry' then
    local lock = own .. 'unique:' .. job.unique_key
    if redis.pcall('GET', lock) == jid then
      redis.call('DEL', lock)
    end
  end
  if job.checkpoint ~= nil then
    redis.pcall('DEL', PREFIX .. 'it-' .. jid)
  end
  if type(job.batch) == 'string' then
    pcall(batch().count, job.batch, { jid }, kind, '', '')
  end
  local run = job.cron
  if type(run) == 'table' and type(run.name) == 'string' and type(run.slot) == 'number' then
    local facts = { state = 'cancelled', queue = queue, finished_at = now, error = '' }
    local field = string.format('%d ', run.slot) .. jid
    pcall(note_run, own .. 'cron-runs:' .. run.name, field, cjson.encode(facts), RUNS_LIFE_S)
  end
end

