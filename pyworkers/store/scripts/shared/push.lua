-- Shared by the scripts that push jobs with conditions: the loader puts it in front of them.

-- The most locks that are noted for the sweep, while no server sweeps: about 120 MB.
local MOST_LOCKS = 1000000
-- Of several members with one score, how many are read to find one.
local MOST_READ = 1000

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

-- Push jobs, whose keys start at KEYS k and whose arguments start at ARGV a, to the last one: see push.lua.
local function push_jobs(k, a)
  local number, queues = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
  local WIDTH = 7
  local first_job, first_lock = a + 1 + queues, k + 2 + queues

  -- Decide about each job, without a write: it is pushed unless `other` is set or `dropped`.
  local jobs, holders, waiting = {}, {}, {}
  local lock = first_lock
  for place = 1, number do
    local p = first_job + (place - 1) * WIDTH
    local job = { queue = 1 + ARGV[p + 1], jid = ARGV[p + 2], payload = ARGV[p + 3], at = ARGV[p + 4] }
    jobs[place] = job
    local limit, mode = tonumber(ARGV[p + 5]), ARGV[p + 7]
    if ARGV[p + 6] ~= '0' then
      job.lock, job.score, job.life, job.mode = KEYS[lock], KEYS[lock + 1], ARGV[p + 6], mode
      lock = lock + 2
      local earlier = holders[job.lock]
      local held = earlier and earlier.jid or redis.call('GET', job.lock)
      if held and mode == 'replace' and held ~= job.jid then
        if earlier and earlier.at ~= '' then
          earlier.dropped, job.old = true, earlier.old
          held = false
        elseif not earlier then
          job.old = scheduled(KEYS[k + 1], job.score, held)
          held = not job.old and held
        end
      elseif held and mode == 'raise' and held ~= job.jid then
        return { 'duplicate', place, held }
      end
      job.other = held
      if not held then
        holders[job.lock] = job
      end
    end
    if job.at == '' and not job.other then
      local size = waiting[job.queue] or redis.call('LLEN', KEYS[k + job.queue])
      if limit > 0 and size >= limit then
        return { 'full', place }
      end
      waiting[job.queue] = size + 1
    end
  end

  -- An error in the middle of a script does not undo its earlier writes: check the types first.
  if not holds(KEYS[k], 'set') or not holds(KEYS[k + 1], 'zset') then
    return redis.error_reply('WRONGTYPE ' .. KEYS[k] .. ' is no set, or ' .. KEYS[k + 1] .. ' is no zset')
  end

  -- Effects come first: if Redis refuses one, the job is not pushed.
  local failed = apply_effects(lock, first_job + number * WIDTH + 1, function(place)
    return not jobs[place].other and not jobs[place].dropped
  end)
  if #failed > 0 then
    return { 'failed', failed[2] }
  end

  local reply, listed, replaced, locked = { 'pushed' }, {}, {}, {}
  local own = PREFIX .. 'pyworkers:'
  for place, job in ipairs(jobs) do
    reply[place + 1] = job.other or 0
    if not job.other and not job.dropped then
      if job.lock then
        redis.call('SET', job.lock, job.jid, 'PX', job.life)
        -- One that ends by time alone is never checked.
        if string.sub(job.lock, -7) ~= '|expiry' then
          locked[#locked + 1] = string.sub(job.lock, #own + 1)
        end
        if job.mode == 'replace' and job.at ~= '' then
          redis.call('SET', job.score, job.at, 'PX', job.life)
        else
          -- That of an earlier holder: it could name this job.
          redis.call('DEL', job.score)
        end
        if job.old then
          redis.call('ZREM', KEYS[k + 1], job.old)
          replaced[#replaced + 1] = job.old
        end
      end
      if job.at ~= '' then
        redis.call('ZADD', KEYS[k + 1], job.at, job.payload)
      else
        if not listed[job.queue] then
          listed[job.queue] = redis.call('SADD', KEYS[k], ARGV[a + job.queue])
        end
        redis.call('LPUSH', KEYS[k + job.queue], job.payload)
      end
    end
  end
  if #locked > 0 and holds(own .. 'locks', 'set') and redis.call('SCARD', own .. 'locks') < MOST_LOCKS then
    -- The sweep forgets the locks that are released.
    redis.call('SADD', own .. 'locks', unpack(locked))
  end
  for _, old in ipairs(replaced) do
    reply[#reply + 1] = old
  end
  return reply
end

