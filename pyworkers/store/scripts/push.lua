-- Push jobs that have terms (terms.py), all or none.
--
-- KEYS 1 queues  2 schedule  then the queues of the jobs
--      then for each job with a lock: the lock, and the score of the scheduled job that holds it
--      then the keys of each effect
-- ARGV 1 number of jobs  2 number of queues, then their names
--      then for each job: place of its queue, jid, payload, time at which it is due or '' for now,
--      most jobs in its queue or 0, life of its lock in ms or 0 for no lock, mode of its lock
--      then for each effect: place of its job, name and arguments (effects.py)
-- Returns { 'pushed', for each job: 0, or the jid of the job that holds its lock; then the replaced jobs }
--      or, before any job was pushed: { 'full', place of the job }, { 'duplicate', place of the job, jid },
--      { 'failed', the error of an effect }

local number, queues = tonumber(ARGV[1]), tonumber(ARGV[2])
local WIDTH = 7
local first_job, first_lock = 2 + queues, 3 + queues
-- Of several members with one score, how many are read to find one.
local MOST_READ = 1000

-- The scheduled job that holds a lock; nil if it is no longer scheduled under the score that was kept.
local function scheduled(key, jid)
  local score = redis.call('GET', key)
  if not tonumber(score) then
    return nil
  end
  local members = redis.call('ZRANGEBYSCORE', KEYS[2], score, score, 'LIMIT', 0, MOST_READ)
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

-- Decide about each job, without a write: it is pushed unless `other` is set or `dropped`.
local jobs, holders, waiting = {}, {}, {}
local k = first_lock
for place = 1, number do
  local a = first_job + (place - 1) * WIDTH
  local job = { queue = 2 + ARGV[a + 1], jid = ARGV[a + 2], payload = ARGV[a + 3], at = ARGV[a + 4] }
  jobs[place] = job
  local limit, mode = tonumber(ARGV[a + 5]), ARGV[a + 7]
  if ARGV[a + 6] ~= '0' then
    job.lock, job.score, job.life, job.mode = KEYS[k], KEYS[k + 1], ARGV[a + 6], mode
    k = k + 2
    local earlier = holders[job.lock]
    local held = earlier and earlier.jid or redis.call('GET', job.lock)
    if held and mode == 'replace' and held ~= job.jid then
      if earlier and earlier.at ~= '' then
        earlier.dropped, job.old = true, earlier.old
        held = false
      elseif not earlier then
        job.old = scheduled(job.score, held)
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
    local size = waiting[job.queue] or redis.call('LLEN', KEYS[job.queue])
    if limit > 0 and size >= limit then
      return { 'full', place }
    end
    waiting[job.queue] = size + 1
  end
end

-- An error in the middle of a script does not undo its earlier writes: check the types first.
if not holds(KEYS[1], 'set') or not holds(KEYS[2], 'zset') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is no set, or ' .. KEYS[2] .. ' is no zset')
end

-- Effects come first: if Redis refuses one, the job is not pushed.
local failed = apply_effects(k, first_job + number * WIDTH + 1, function(place)
  return not jobs[place].other and not jobs[place].dropped
end)
if #failed > 0 then
  return { 'failed', failed[2] }
end

local reply, listed, replaced = { 'pushed' }, {}, {}
for place, job in ipairs(jobs) do
  reply[place + 1] = job.other or 0
  if not job.other and not job.dropped then
    if job.lock then
      redis.call('SET', job.lock, job.jid, 'PX', job.life)
      if job.mode == 'replace' and job.at ~= '' then
        redis.call('SET', job.score, job.at, 'PX', job.life)
      else
        -- That of an earlier holder: it could name this job.
        redis.call('DEL', job.score)
      end
      if job.old then
        redis.call('ZREM', KEYS[2], job.old)
        replaced[#replaced + 1] = job.old
      end
    end
    if job.at ~= '' then
      redis.call('ZADD', KEYS[2], job.at, job.payload)
    else
      if not listed[job.queue] then
        listed[job.queue] = redis.call('SADD', KEYS[1], ARGV[job.queue])
      end
      redis.call('LPUSH', KEYS[job.queue], job.payload)
    end
  end
end
for _, old in ipairs(replaced) do
  reply[#reply + 1] = old
end
return reply
