-- Shared by the scripts that push jobs with conditions: the loader puts it in front of them.

-- The most locks that are noted for the sweep, while no server sweeps: about 120 MB.
local MOST_LOCKS = 1000000
-- Of several members with one score, how many are read to find one.
local MOST_READ = 1000

-- Some jobs may be due at the same time, but each that may be replaced is found among those with its score: they must
-- not be thousands. So its time has less than a millisecond more, by the digest at the end of its lock's name.
local function spread(at, lock)
  local digits = string.match(lock, '(%x%x%x)$') or string.match(lock, '(%x%x%x)|expiry$')
  return digits and string.format('%.17g', at + tonumber(digits, 16) / 4194304) or at
end

-- The scheduled job that holds a lock; nil if it is no longer scheduled under the score that was kept.
local function scheduled(schedule, key, jid)
  local score = redis.call('GET', key)
  if not tonumber(score) then
    return nil
  end
  local members = redis.call('ZRANGEBYSCORE', schedule, score, score, 'LIMIT', 0, MOST_READ)
  for _, member in ipairs(members) do
    -- Few members hold the jid, and only these are decoded.
    if string.find(member, jid, 1, true) then
      local read, job = pcall(cjson.decode, member)
      if read and type(job) == 'table' and job.jid == jid then
        return member
      end
    end
  end
end

-- Name → true for a valid value.
local OPTIONS = {
  at = is_score,
  max_waiting = is_positive,
  lock = is_life,
  on_duplicate = function(value)
    return value == 'skip' or value == 'raise' or value == 'replace'
  end,
  status = is_life,
  history = function(value)
    return value == '1'
  end,
  batch = function(value)
    return value ~= ''
  end,
  run = function(value)
    local read, run = pcall(cjson.decode, value)
    if not (read and type(run) == 'table' and type(run[1]) == 'string' and type(run[2]) == 'string') then
      return false
    end
    local _, facts = pcall(cjson.decode, run[3])
    return type(facts) == 'table' and type(run[4]) == 'number' and is_life(string.format('%.17g', run[4]))
  end,
}

-- The jobs whose keys start at KEYS k and whose arguments start at ARGV a; nil and the reason for others.
local function read_jobs(k, a)
  local number, queues = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  if not number or not queues then
    return nil, 'no numbers of jobs and queues'
  end
  local jobs, lock, p = {}, k + 2 + queues, a + 2 + queues
  for place = 1, number do
    local job = { queue = tonumber(ARGV[p]), jid = ARGV[p + 1], payload = ARGV[p + 2] }
    local options = tonumber(ARGV[p + 3])
    local is_listed = job.queue and job.queue % 1 == 0 and job.queue >= 1 and job.queue <= queues
    if not (options and is_listed and job.jid ~= '') then
      return nil, 'job ' .. place .. ' has no queue, no jid, or no number of options'
    end
    job.key, job.name, p = KEYS[k + 1 + job.queue], ARGV[a + 1 + job.queue], p + 4
    for _ = 1, options do
      local name, value = ARGV[p], ARGV[p + 1]
      if not (value and OPTIONS[name] and OPTIONS[name](value)) then
        return nil, 'job ' .. place .. ' has an option that is unknown, or has an invalid value: ' .. tostring(name)
      end
      job[name], p = value, p + 2
    end
    if job.lock then
      job.life, job.lock, job.score, lock = job.lock, KEYS[lock], KEYS[lock + 1], lock + 2
      if job.at and job.lock and job.on_duplicate == 'replace' then
        job.at = spread(job.at, job.lock)
      end
    end
    jobs[place] = job
  end
  if KEYS[lock] == PREFIX .. 'pyworkers:slot' then
    lock = lock + 1
  end
  if p ~= #ARGV + 1 or lock ~= #KEYS + 1 then
    return nil, 'the number of keys or of arguments does not fit the jobs'
  end
  return jobs
end

-- Push the jobs whose keys start at KEYS k and whose arguments start at ARGV a, to the last one: see push.lua.
-- Returns its reply, and the jobs.
local function push_jobs(k, a)
  local jobs, reason = read_jobs(k, a)
  if not jobs then
    return redis.error_reply('ERR pyworkers push: ' .. reason)
  end
  local own, queues, schedule = PREFIX .. 'pyworkers:', KEYS[k], KEYS[k + 1]
  local made
  local function batch()
    made = made or batches()
    return made
  end

  -- Decide about each job, without a write: it is pushed unless `other` is set or `dropped`.
  local holders, waiting, lengths, full = {}, {}, {}, nil
  for place, job in ipairs(jobs) do
    if job.lock then
      local earlier = holders[job.lock]
      local held = earlier and earlier.jid or redis.call('GET', job.lock)
      if held and job.on_duplicate == 'replace' and held ~= job.jid then
        if earlier and earlier.at then
          earlier.dropped, job.old, job.old_jid = true, earlier.old, earlier.old_jid
          held = false
        elseif not earlier then
          job.old, job.old_jid = scheduled(schedule, job.score, held), held
          held = not job.old and held
        end
      elseif held and job.on_duplicate == 'raise' and held ~= job.jid then
        return { 'duplicate', place, held }
      end
      job.other = held
      if not held then
        holders[job.lock] = job
      end
    end
    if not job.at and not job.other then
      local ahead, limit = waiting[job.key] or 0, tonumber(job.max_waiting)
      waiting[job.key] = ahead + 1
      lengths[job.key] = lengths[job.key] or redis.call('LLEN', job.key)
      if limit and lengths[job.key] + ahead >= limit and (not full or full.key == job.key) then
        full = full or { place = place, key = job.key, room = limit }
        full.room = math.min(full.room, limit - 1 - ahead)
      end
    end
    if job.batch and not job.other then
      local key = own .. 'batch:' .. job.batch
      if redis.call('HEXISTS', key, 'open') == 0 then
        return { 'batch', place, 'unknown' }
      elseif redis.call('HEXISTS', key, 'success_at') == 1 then
        return { 'batch', place, 'ended' }
      elseif redis.call('HEXISTS', key, 'cancel_at') == 1 then
        return { 'batch', place, 'cancelled' }
      end
    end
  end
  if full then
    return { 'full', full.place, full.room }
  end

  -- An error in the middle of a script does not undo its earlier writes: check the types first.
  local pushed, wanted = {}, { [queues] = 'set', [schedule] = 'zset' }
  for _, job in ipairs(jobs) do
    if not job.other and not job.dropped then
      pushed[#pushed + 1] = job
      if job.status then
        wanted[own .. 'job:' .. job.jid] = 'hash'
      end
      if job.batch then
        wanted[own .. 'batch:' .. job.batch .. ':members'] = 'set'
      end
    end
  end
  for key, kind in pairs(wanted) do
    if not holds(key, kind) then
      return redis.error_reply('WRONGTYPE ' .. key .. ' is not a ' .. kind)
    end
  end

  local listed, locked = {}, {}
  for _, job in ipairs(pushed) do
    -- First: a member that is pushed before it is one would not be counted.
    if job.batch then
      batch().add(job.batch, job.jid)
    end
    if job.status then
      local key = own .. 'job:' .. job.jid
      redis.call('HSET', key, 'state', job.at and 'scheduled' or 'waiting', 'queue', job.name, 'attempt', '0')
      if job.history then
        redis.call('HSET', key, 'job', job.payload)
      end
      redis.call('EXPIRE', key, job.status)
    end
    if job.run then
      local run = cjson.decode(job.run)
      note_run(own .. run[1], run[2], run[3], run[4])
    end
    if job.lock then
      redis.call('SET', job.lock, job.jid, 'PX', job.life)
      -- One that ends by time alone is never checked.
      if string.sub(job.lock, -7) ~= '|expiry' then
        locked[#locked + 1] = string.sub(job.lock, #own + 1)
      end
      if job.on_duplicate == 'replace' and job.at then
        redis.call('SET', job.score, job.at, 'PX', job.life)
      else
        -- The score of an earlier holder could name this job.
        redis.call('DEL', job.score)
      end
      if job.old then
        redis.call('ZREM', schedule, job.old)
      end
    end
    if job.at then
      redis.call('ZADD', schedule, job.at, job.payload)
    else
      if not listed[job.key] then
        listed[job.key] = redis.call('SADD', queues, job.name)
      end
      redis.call('LPUSH', job.key, job.payload)
    end
  end
  if #locked > 0 and holds(own .. 'locks', 'set') and redis.call('SCARD', own .. 'locks') < MOST_LOCKS then
    -- The sweep forgets the locks that are released.
    redis.call('SADD', own .. 'locks', unpack(locked))
  end
  for _, job in ipairs(pushed) do
    if job.old then
      end_waiting(cjson.decode(job.old), job.old_jid, 'replaced', batch)
    end
  end
  local reply = { 'pushed' }
  for place, job in ipairs(jobs) do
    reply[place + 1] = job.other or ''
  end
  return reply, jobs
end
