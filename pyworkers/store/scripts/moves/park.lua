-- Park jobs of a queue that moves to another Redis, in one list, as PLACE SCORE JOB. While jobs are parked, no
-- others are: the receipt of the other Redis is the number of the last portion.
--
-- KEYS 1 parked jobs  2 moves  3 the queue, or the sorted set in which its jobs wait
-- ARGV 1 name of the queue  2 id of the move  3 place: 'queue', 'schedule' or 'retry'
--      4 how many jobs were between these and the end of the queue that is popped next
--      5 how many jobs were read there, these included
--      6 number of a portion that has arrived: a new one has a later number, also if a failover has lost writes here
--      7... the jobs; of a queue the one that is popped next first
-- Returns { number of the portion, 1 if these jobs were parked or 0 if others are, the parked jobs }
--      or { -1 }: this move has ended

local REACH = 100
local GONE = '\0pyworkers: parked'

local id, portion, rest = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)(.*)$')
if id ~= ARGV[2] then
  return { -1 }
end
portion = tonumber(portion)
if not holds(KEYS[1], 'list') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a list')
end

-- The indexes of the jobs around the place where they were read, by their bytes; the last one is the next.
local function indexes()
  local found, half = {}, math.ceil(ARGV[5] / 2)
  around(KEYS[3], redis.call('LLEN', KEYS[3]) - ARGV[4] - half, half + REACH, function(index, job)
    found[job] = found[job] or {}
    table.insert(found[job], index)
  end)
  for _, places in pairs(found) do
    table.sort(places)
  end
  return found
end

local reply = { portion, 0 }
if redis.call('EXISTS', KEYS[1]) == 0 then
  reply[2] = 1
  local of_queue = ARGV[3] == 'queue'
  local at, parked = of_queue and indexes(), 0
  for place = 7, #ARGV do
    local job, index, score = ARGV[place], nil, nil
    if of_queue then
      index = at[job] and table.remove(at[job])
      score = index and '0'
    else
      score = redis.call('ZSCORE', KEYS[3], job)
    end
    if score then
      if parked == 0 then
        reply[1] = math.max(portion, tonumber(ARGV[6])) + 1
        redis.call('HSET', KEYS[2], ARGV[1], id .. ' ' .. reply[1] .. rest)
      end
      parked = parked + 1
      redis.call('RPUSH', KEYS[1], ARGV[3] .. ' ' .. score .. ' ' .. job)
      if of_queue then
        redis.call('LSET', KEYS[3], index, GONE)
      else
        redis.call('ZREM', KEYS[3], job)
      end
    end
  end
  -- One walk over the jobs that stay, not one for each job.
  if of_queue and parked > 0 then
    redis.call('LREM', KEYS[3], -parked, GONE)
  end
end
for _, job in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  reply[#reply + 1] = job
end
return reply
