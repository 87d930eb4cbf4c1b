-- Put deleted jobs back where they were, on request: scheduled, failed and dead ones with their scores, waiting ones at
-- the end of their queue that is popped next, the last of them first. The kept field is the receipt.
--
-- KEYS 1 kept jobs of this deletion (hash)  2 queues  3 … keys of the places, and locks
--      then the keys of each effect
-- ARGV 1 place of the first key of the effects  2 place of the last argument of the jobs
--      then for each job: its field, job, score ('' in a queue), name of its queue, place of its key, jid,
--        id of its batch or '', place of its lock or 0, life of the lock in ms
--      then for each effect: place of its job, counted from 1, name and arguments (protocol/effects)
--      last: the prefix of all keys, or ''
-- Returns for each job 'back'; or 'gone' if it was put back before, 'batch' if its batch has counted it as not done,
-- 'type' if its place is of another type, or 'lock' and the jid of the job that holds its lock: then it stays deleted.

local made
local function counted(batch, jid)
  if batch == '' then
    return false
  end
  made = made or batches()
  local key = made.key(batch)
  return redis.call('HEXISTS', key, 'open') == 1 and not made.has(key, jid)
end

local function reason_against(i, key, lock)
  local waits = ARGV[i + 2] == ''
  -- All types first: an error after the receipt would lose the job.
  local fits = holds(key, waits and 'list' or 'zset') and (not waits or holds(KEYS[2], 'set'))
  if not (fits and (not lock or holds(lock, 'string'))) then
    return 'type'
  elseif counted(ARGV[i + 6], ARGV[i + 5]) then
    return 'batch'
  end
  local holder = lock and redis.call('GET', lock)
  return holder and holder ~= ARGV[i + 5] and 'lock ' .. holder
end

local function put_back(i, key, lock)
  if lock then
    local own = PREFIX .. 'pyworkers:'
    redis.call('SET', lock, ARGV[i + 5], 'PX', ARGV[i + 8])
    if string.sub(lock, -7) ~= '|expiry' and holds(own .. 'locks', 'set') then
      redis.call('SADD', own .. 'locks', string.sub(lock, #own + 1))
    end
  end
  if ARGV[i + 2] == '' then
    redis.call('SADD', KEYS[2], ARGV[i + 3])
    redis.call('RPUSH', key, ARGV[i + 1])
  else
    keep(key, ARGV[i + 2], ARGV[i + 1])
  end
end

local found, back = {}, {}
local last = tonumber(ARGV[2])
for i = 3, last, 9 do
  local key, lock = KEYS[tonumber(ARGV[i + 4])], KEYS[tonumber(ARGV[i + 7])]
  local why = reason_against(i, key, lock)
  if not why and redis.call('HDEL', KEYS[1], ARGV[i]) == 0 then
    why = 'gone'
  elseif not why then
    put_back(i, key, lock)
    back[(i + 6) / 9] = true
  end
  found[#found + 1] = why or 'back'
end
apply_effects(tonumber(ARGV[1]), last + 1, function(place)
  return back[place]
end)
return found
