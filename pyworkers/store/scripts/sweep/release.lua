-- Release what is held for jobs that are gone, unless one of them is found after all: both ends of all queues and
-- lists are read again, in the same step, because jobs move there.
--
-- KEYS 1 turn  2 missing  3 queues  4 owners  5 schedule  6 retry  7 dead  8 goretry  then other lists
-- ARGV 1 token  2 life of the turn in ms  then the jobs, as fields of `missing`
-- Returns { number of locks, number of members, number of awaited jobs, then the error of each release that failed }, or nothing
-- without the turn.

if not sweeping() then
  return nil
end
local END, END_BYTES, MOST_BYTES = 100, 1048576, 8388608
local batch = batches()

local ids, bytes = {}, 0
local function read_ends(key)
  for _, down in ipairs({ false, true }) do
    local raws = bytes < MOST_BYTES and page_of(key, down, 0, END, END_BYTES) or {}
    for _, raw in ipairs(raws) do
      bytes = bytes + #raw
      add_ids(raw, ids)
    end
  end
end

for n = 5, 8 do
  read_ends(KEYS[n])
end
local lists = {}
for _, name in ipairs(redis.call('SMEMBERS', KEYS[3])) do
  lists[PREFIX .. 'queue:' .. name] = true
end
local owners = redis.call('HGETALL', KEYS[4])
for n = 1, #owners, 2 do
  local known, names = pcall(cjson.decode, owners[n + 1])
  for _, name in ipairs(known and type(names) == 'table' and names or {}) do
    lists[PREFIX .. 'queue:' .. tostring(name)] = true
    lists[PREFIX .. 'queue:' .. tostring(name) .. ':' .. owners[n] .. ':inprogress'] = true
  end
end
for n = 9, #KEYS do
  lists[KEYS[n]] = true
end
for list in pairs(lists) do
  read_ends(list)
end
strike(ids)

-- True for a batch in a chain, a step of which has yet to start before it: if the job of that step is gone, the
-- chain ends, and the batch with it. The jobs that follow a batch are in it. One that is in an earlier batch
-- is no such step: there it is not gone. Each batch is visited once: one that another program has written may be
-- around itself.
local function is_ahead(id, known)
  known[id] = true
  local parent = redis.call('HGET', batch.key(id), 'parent')
  if not parent then
    return false
  end
  parent = string.sub(parent, string.find(parent, ' ', 1, true) + 1)
  local around = batch.key(parent)
  if redis.call('HGET', around, 'kind') == 'chain' then
    local steps, after = {}, {}
    for n = 2, 4 do
      for _, member in ipairs(redis.call('SMEMBERS', around .. batch.PARTS[n])) do
        local key = batch.key(member)
        if not batch.is_hold(member) and redis.call('HEXISTS', key, 'open') == 0 then
          steps[#steps + 1] = member
        end
        for _, item in ipairs(redis.call('LRANGE', key .. ':then', 0, -1)) do
          add_ids(item, after)
        end
      end
    end
    for _, step in ipairs(steps) do
      if not after[step] then
        return true
      end
    end
  end
  return not known[parent] and is_ahead(parent, known)
end

local function count_out(id, member)
  -- A chain whose step is done meanwhile must not end.
  if not batch.has(batch.key(id), member) or is_ahead(id, {}) then
    return 0
  end
  batch.count(id, { member }, 'missing', -1, '')
  return 1
end

local LOST_LIFE_S = 86400
local LOST = 'no queue and no set has the job, and no server of pyworkers has ended it: another program has run or deleted it'

-- Tell those who wait for the end of a tracked job that it is unknown.
local function give_up(jid)
  local own = PREFIX .. 'pyworkers:'
  if not is_awaited(own, jid) then
    return 0
  end
  redis.call('XADD', own .. 'result:' .. jid, 'MAXLEN', 1, '*', 'v', cjson.encode({ state = 'unknown', error = LOST }))
  redis.call('EXPIRE', own .. 'result:' .. jid, LOST_LIFE_S)
  if redis.call('EXISTS', own .. 'job:' .. jid) == 1 then
    redis.call('HSET', own .. 'job:' .. jid, 'state', 'unknown', 'error', LOST)
    redis.call('EXPIRE', own .. 'job:' .. jid, LOST_LIFE_S)
  end
  return 1
end

local released = { 0, 0, 0 }
for n = 3, #ARGV do
  local field = ARGV[n]
  local value = redis.call('HGET', KEYS[2], field)
  if value then
    local name, jid = string.match(value, '^%S+ (.*)$'), string.sub(field, 3)
    if string.sub(field, 1, 1) == 'L' then
      local lock = PREFIX .. 'pyworkers:' .. name
      if redis.pcall('GET', lock) == jid then
        released[1] = released[1] + redis.call('DEL', lock)
      end
    elseif string.sub(field, 1, 1) == 'T' then
      released[3] = released[3] + give_up(jid)
    else
      local done, result = pcall(count_out, name, jid)
      if done then
        released[2] = released[2] + result
      else
        released[#released + 1] = type(result) == 'table' and result.err or tostring(result)
      end
    end
    redis.call('HDEL', KEYS[2], field)
  end
end
return released
