-- pyworkers batch, wire 1
--
-- Make a batch, open it again, or add members to it, with their jobs; and close it. A batch is open while it has a hold,
-- a name that its producer chooses: no callback fires meanwhile. Members with conditions are pushed by push.lua, while
-- the batch is open. Or delete it: without a callback, and its jobs run nevertheless.
--
-- KEYS 1 queues  2 schedule  3 pyworkers:batches  then the list of each queue of the jobs below
-- ARGV 1 id of the batch  2 'create', 'open', 'add', or 'delete', for which the others are '' and 0
--      3 name of the hold to put, or ''  4 name of the hold to release, or ''
--      5 number of fields  6 number of jobs that follow  7 number of members, at most 1000
--      then name and value of each field of the hash, for 'create'
--      then the jobs that follow a group, each 'QUEUE JOB', for 'create'
--      then the ids of the members
--      then for each queue with jobs: its name, place of its key in KEYS, number of its jobs, then these
--      for jobs for later: '', 2, twice their number, then time and job in turn
--      last: the prefix of all keys, or ''
-- Returns 'ok'; or, and nothing was done: 'unknown' if the batch, or the one around it, does not exist, 'ended' if all
-- of its members were done, 'cancelled' if it, or the one around it, is cancelled, and there is more to do than to release
-- a hold, 'exists' if it was to be made and is there; or an error, WRONGTYPE.

local batch = batches()

-- Delete a batch and those inside it: for the batch around it, it is a deleted member. Each is visited once: a batch that
-- another program has written may be its own member.
local function delete(id)
  if redis.call('HEXISTS', batch.key(id), 'open') == 0 then
    return 'unknown'
  end
  local parent = redis.call('HGET', batch.key(id), 'parent')
  local ids, known = { id }, { [id] = true }
  local place = 1
  while ids[place] do
    local key = batch.key(ids[place])
    for n = 2, 4 do
      for _, member in ipairs(redis.call('SMEMBERS', key .. batch.PARTS[n])) do
        if not known[member] and redis.call('HEXISTS', batch.key(member), 'open') == 1 then
          known[member] = true
          ids[#ids + 1] = member
        end
      end
    end
    for _, part in ipairs(batch.PARTS) do
      redis.call('UNLINK', key .. part)
    end
    redis.call('ZREM', PREFIX .. 'pyworkers:batches', ids[place])
    place = place + 1
  end
  if parent then
    batch.count(string.sub(parent, string.find(parent, ' ', 1, true) + 1), { id }, 'deleted', '', '')
  end
  return 'ok'
end

local queues, id, mode = KEYS[1], ARGV[1], ARGV[2]
local key = batch.key(id)
local fields, follow, members = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local first_field, first_follow = 8, 8 + 2 * fields
local first_member = first_follow + follow
local first_job = first_member + members

if not (holds(queues, 'set') and holds(KEYS[2], 'zset') and holds(KEYS[3], 'zset')) then
  return redis.error_reply('WRONGTYPE ' .. table.concat({ queues, KEYS[2], KEYS[3] }, ', ') .. ': one has the wrong type')
end
for n = 4, #KEYS do
  if not holds(KEYS[n], 'list') then
    return redis.error_reply('WRONGTYPE ' .. KEYS[n] .. ' is not a list')
  end
end

-- The jobs of each queue: name, key, place of the first argument, number of arguments.
local pushes, at = {}, first_job
while at <= #ARGV do
  local key, count = KEYS[tonumber(ARGV[at + 1])], tonumber(ARGV[at + 2])
  local is_later = ARGV[at] == ''
  if not (key and count and count >= 1 and count % (is_later and 2 or 1) == 0 and at + 2 + count <= #ARGV) then
    return redis.error_reply('ERR pyworkers batch: the jobs of a queue have no key, or not this number of arguments')
  end
  for n = at + 3, is_later and at + 2 + count or 0, 2 do
    if not is_score(ARGV[n]) then
      return redis.error_reply('ERR pyworkers batch: a time is not a number that Redis reads: ' .. ARGV[n])
    end
  end
  pushes[#pushes + 1] = { ARGV[at], key, at + 3, at + 2 + count }
  at = at + 3 + count
end

if mode == 'delete' then
  return delete(id)
end

local parent
if mode == 'create' then
  for i = first_field, first_follow - 1, 2 do
    if ARGV[i] == 'parent' then
      parent = string.sub(ARGV[i + 1], string.find(ARGV[i + 1], ' ', 1, true) + 1)
    end
  end
  if redis.call('HEXISTS', key, 'open') == 1 then
    return 'exists'
  elseif parent and not batch.touch(batch.key(parent)) then
    return 'unknown'
  elseif parent and redis.call('HEXISTS', batch.key(parent), 'cancel_at') == 1 then
    return 'cancelled'
  end
elseif not batch.touch(key) then
  return 'unknown'
elseif redis.call('HEXISTS', key, 'success_at') == 1 then
  return 'ended'
elseif (members > 0 or #pushes > 0 or ARGV[3] ~= '') and redis.call('HEXISTS', key, 'cancel_at') == 1 then
  return 'cancelled'
end

if mode == 'create' then
  local now = batch.now()
  redis.call('HSET', key, 'created_at', now, 'open', 0, 'total', 0, 'done', 0)
  if fields > 0 then
    redis.call('HSET', key, unpack(ARGV, first_field, first_follow - 1))
  end
  for i = first_follow, first_member - 1 do
    redis.call('RPUSH', key .. ':then', ARGV[i])
  end
  batch.touch(key)
  -- The score is the time at which the batch expires, unless it changes later.
  redis.call('ZADD', KEYS[3], string.sub(now, 1, -8) + batch.LIFE, id)
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 10)) do
    if redis.call('EXISTS', batch.key(other)) == 1 then
      redis.call('ZADD', KEYS[3], string.sub(now, 1, -8) + batch.LIFE, other)
    else
      redis.call('ZREM', KEYS[3], other)
    end
  end
  if parent then
    batch.add(parent, id)
    -- For people: the number of the batches inside it, done ones included, and the first of them.
    local number = redis.call('HINCRBY', batch.key(parent), 'inner', 1)
    if number <= 50 then
      redis.call('HSET', batch.key(parent), 'inner:' .. number, id)
    end
  end
end
if ARGV[3] ~= '' and redis.call('SADD', key .. ':members', 'hold:' .. ARGV[3]) == 1 then
  redis.call('HINCRBY', key, 'open', 1)
  redis.call('EXPIRE', key .. ':members', batch.LIFE)
end
if members > 0 then
  batch.add(id, unpack(ARGV, first_member, first_job - 1))
end
for _, push in ipairs(pushes) do
  if push[1] == '' then
    redis.call('ZADD', push[2], unpack(ARGV, push[3], push[4]))
  else
    redis.call('SADD', queues, push[1])
    redis.call('LPUSH', push[2], unpack(ARGV, push[3], push[4]))
  end
end
if ARGV[4] ~= '' then
  batch.release(key, ARGV[4])
  if redis.call('HGET', key, 'streams') == ARGV[4] then
    redis.call('HDEL', key, 'streams')
  end
end
batch.conclude(id)
return 'ok'
