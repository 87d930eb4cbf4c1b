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

-- For the scripts that make names of keys: the prefix of all keys, which is an argument after all others.
local PREFIX = table.remove(ARGV)

-- Shared by the scripts below; the loader puts it in front of each.

-- ZADD of bytes that are already a member would merge two jobs into one. JSON ignores trailing spaces, so
-- spaces are appended until the bytes are new.
local function keep(zset, score, payload)
  while redis.call('ZADD', zset, 'NX', score, payload) == 0 do
    payload = payload .. ' '
  end
end

-- True if a key has this type or does not exist. An error in the middle of a script does not undo its earlier
-- writes, so check the type before a job is removed from its present key.
local function holds(key, wanted)
  local kind = redis.call('TYPE', key).ok
  return kind == wanted or kind == 'none'
end

-- Sidekiq trims `dead` by age and by size whenever it adds to it. Another program may have left a set of any size there, whose
-- trim would block Redis: then a script removes a thousand.
local has_trimmed = false
local function bury(dead, now, oldest, most, payload)
  keep(dead, now, payload)
  if redis.call('ZCARD', dead) - most <= 1000 then
    redis.call('ZREMRANGEBYSCORE', dead, '-inf', '(' .. oldest)
    redis.call('ZREMRANGEBYRANK', dead, 0, -most - 1)
  elseif not has_trimmed then
    has_trimmed = true
    redis.call('ZREMRANGEBYRANK', dead, 0, 999)
  end
end

-- Note that the slots of a cron entry up to a moment are dealt with; an earlier moment changes nothing.
local function begin_at(slots, name, moment)
  local last = tonumber(redis.call('HGET', slots, name) or '')
  if not (last and last >= tonumber(moment)) then
    redis.call('HSET', slots, name, moment)
  end
end

-- The time by Redis' clock in seconds, as text with microseconds.
local function clock()
  local time = redis.call('TIME')
  return time[1] .. '.' .. string.format('%06d', time[2])
end

-- Have Redis refuse no later write of this script when maxmemory is reached, by one that needs no memory and changes
-- nothing: for what frees memory. Any sorted set will do, and a key of another type.
local function allow_writes(zset)
  redis.pcall('ZREMRANGEBYSCORE', zset, 1, 0)
end

-- Add a note that a job must not run; it expires after `life` seconds.
local function note(notes, jid, life)
  local now = clock()
  allow_writes(notes)
  redis.call('ZADD', notes, now, jid)
  redis.call('ZREMRANGEBYSCORE', notes, '-inf', math.floor(now) - life)
  redis.call('EXPIRE', notes, life)
end
-- Shared by the scripts that count the members of batches: the loader puts it in front of them.
--
-- A batch is the HASH …batch:ID with its numbers, its times and its callbacks, and SETs of members:
-- …batch:ID:members have not run yet, …:failed wait for a retry, …:dead are dead. The HASH …:ended has the members
-- that are gone and not done, with the kind of their end (batch.KINDS), and the first HASH the number of each kind.
-- The member `hold:TOKEN` is not a job: it keeps the callbacks back while members are added. A batch with `cancel_at` is
-- cancelled: it takes no members, and its holds keep nothing back. …:results has what the
-- members of a group returned, …:then the jobs that follow a group. `id` is always a batch.
--
-- Made at the first use: most scripts that apply effects count no member.
local function batches()
local batch = {}

-- The TTL is written at the first change of each day, so that it is 90 days at least after the last one.
batch.LIFE, batch.LIFE_ENDED = 91 * 86400, 86400
-- How long servers refuse the members of a cancelled batch; the sweep renews it while there are any.
batch.NOTE_LIFE = 86400
batch.PARTS = { '', ':members', ':failed', ':dead', ':results', ':then', ':ended' }
-- How members are gone that are not done. The steps after one that is gone are skipped.
batch.KINDS = { 'dropped', 'cancelled', 'deleted', 'expired', 'missing', 'skipped' }
-- The kinds that a batch with `if_missing` = 'ignore' leaves out of its total.
batch.LEFT_OUT = { cancelled = true, deleted = true, expired = true, missing = true }

function batch.key(id)
  return PREFIX .. 'pyworkers:batch:' .. id
end

-- Epoch seconds, read once: a script has one time.
function batch.now()
  if not batch.time then
    batch.time = clock()
  end
  return batch.time
end

function batch.expire(key, life)
  for _, part in ipairs(batch.PARTS) do
    redis.call('EXPIRE', key .. part, life)
  end
end

-- The facts that each change needs: the number of holds, or nil for an unknown batch.
function batch.touch(key)
  local facts = redis.call('HMGET', key, 'open', 'day')
  local day = string.sub(batch.now(), 1, -8)
  day = tostring((day - day % 86400) / 86400)
  if facts[1] and facts[2] ~= day and facts[2] ~= 'ended' then
    redis.call('HSET', key, 'day', day)
    batch.expire(key, batch.LIFE)
  end
  return facts[1]
end

-- True if the batch has this member, and it is not done.
function batch.has(key, member)
  for n = 2, 4 do
    if redis.call('SISMEMBER', key .. batch.PARTS[n], member) == 1 then
      return true
    end
  end
  return false
end

function batch.put(key, part, member)
  redis.call('SADD', key .. part, member)
  redis.call('EXPIRE', key .. part, batch.LIFE)
end

-- Add members that have not run; nothing happens for an unknown batch.
function batch.add(id, ...)
  local key = batch.key(id)
  if batch.touch(key) then
    redis.call('HINCRBY', key, 'total', redis.call('SADD', key .. ':members', ...))
    redis.call('EXPIRE', key .. ':members', batch.LIFE)
    if redis.call('HEXISTS', key, 'streams') == 1 then
      redis.call('HSET', key, 'pushed_at', batch.now())
    end
  end
end

-- Remove members from the sets that have them, each from one: the receipt of what is counted for them. Returns
-- how many there were.
function batch.leave(key, members)
  local left = 0
  for n = 2, 4 do
    if left < #members then
      local removed = redis.pcall('SREM', key .. batch.PARTS[n], unpack(members))
      -- Those that have left before it count.
      if type(removed) == 'number' then
        left = left + removed
      elseif left == 0 then
        error(removed)
      end
    end
  end
  if left < #members then
    left = left + batch.come_back(key, members)
  end
  return left
end

-- Note that a member is gone and not done.
function batch.go(key, member, kind)
  redis.call('HSET', key .. ':ended', member, kind)
  redis.call('HINCRBY', key, kind, 1)
  redis.call('EXPIRE', key .. ':ended', batch.LIFE)
end

-- Forget that members were gone: one that was missing has run, or a chain continues. Returns how many there were.
function batch.come_back(key, members)
  local kinds = redis.pcall('HMGET', key .. ':ended', unpack(members))
  local back = 0
  for n, member in ipairs(members) do
    if kinds[n] then
      redis.call('HDEL', key .. ':ended', member)
      redis.call('HINCRBY', key, kinds[n], -1)
      back = back + 1
    end
  end
  return back
end

function batch.is_hold(member)
  return string.sub(member, 1, 5) == 'hold:'
end

-- A batch with `streams`, the name of a hold, gets members until its producer closes it. One that has pushed none for
-- an hour has died.
batch.MOST_SILENT = 3600
function batch.is_orphan(key)
  local facts = redis.call('HMGET', key, 'streams', 'pushed_at', 'created_at')
  local last = tonumber(facts[2] or facts[3])
  return facts[1] and last and last < batch.now() - batch.MOST_SILENT
end

function batch.release(key, token)
  if redis.call('SREM', key .. ':members', 'hold:' .. token) == 1 then
    redis.call('HINCRBY', key, 'open', -1)
  end
end

-- The jobs that follow are no larger together with the results, and neither are the results of a group.
batch.MOST_FOLLOWING, batch.MOST_RESULTS = 8388608, 67108864
-- Of a group whose results are put together; another program may have written any size.
batch.MOST_MEMBERS = 1000000
-- The placeholder of the result of a group in a job that an earlier server wrote. Later ones have the places of the
-- results in front: the bytes before each `null` that a result replaces, or '-' (filling.py).
batch.RESULTS = '{"pyworkers":"RESULTS"}'

-- A ready job: its queue, the places of results or nil, and its payload.
function batch.parts(item)
  local queue, places, payload = string.match(item, '^(%S+) ([%d,-]+) ({.*)$')
  if queue then
    return queue, places, payload
  end
  local space = string.find(item, ' ', 1, true)
  return string.sub(item, 1, space - 1), nil, string.sub(item, space + 1)
end

-- True if ready jobs are too large with their results; these are not put together for it.
function batch.too_large(items, result)
  local size = 0
  for _, item in ipairs(items) do
    local _, places, payload = batch.parts(item)
    local _, number = string.gsub(places or payload, places and '%d+' or batch.RESULTS, '')
    size = size + #payload + number * #result
  end
  return size > batch.MOST_FOLLOWING
end

function batch.filled(text, result, places)
  local parts, from = {}, 1
  if places then
    for place in string.gmatch(places, '%d+') do
      parts[#parts + 1] = string.sub(text, from, place)
      parts[#parts + 1] = result
      from = place + 5
    end
    parts[#parts + 1] = string.sub(text, from)
    return table.concat(parts)
  end
  while true do
    local first, last = string.find(text, batch.RESULTS, from, true)
    if not first then
      break
    end
    parts[#parts + 1] = string.sub(text, from, first - 1)
    parts[#parts + 1] = result
    from = last + 1
  end
  parts[#parts + 1] = string.sub(text, from)
  return table.concat(parts)
end

-- A job that was made before it is due expires as long after it is due as was asked for (batch.py). Both times are
-- its last fields: no text of a user's ends like this.
function batch.due(payload)
  local created, expiry = string.match(string.sub(payload, -100), '"created_at":([%w.+-]+),"expiry":([%w.+-]+)}$')
  local delay_s = tonumber(created) and tonumber(expiry) and expiry - created
  if not delay_s then
    return payload
  end
  return string.sub(payload, 1, -#expiry - 2) .. string.format('%.6f', batch.now() + delay_s) .. '}'
end

-- Push ready jobs, each a text 'QUEUE PAYLOAD' (batch.py), with the result of what ended before them.
function batch.push(items, result)
  local queues, prefix = PREFIX .. 'queues', PREFIX .. 'queue:'
  local jobs = {}
  for n, item in ipairs(items) do
    local queue, places, payload = batch.parts(item)
    jobs[n] = { queue, payload, places }
    -- Check the types first: otherwise a callback would be marked as fired, and then its push would fail.
    if not (holds(prefix .. jobs[n][1], 'list') and holds(queues, 'set')) then
      error({ err = 'WRONGTYPE ' .. prefix .. jobs[n][1] .. ' or ' .. queues .. ' has the wrong type' })
    end
  end
  for _, job in ipairs(jobs) do
    local payload = batch.due(batch.filled(job[2], result, job[3]))
    redis.call('SADD', queues, job[1])
    redis.call('LPUSH', prefix .. job[1], string.sub(payload, 1, -2) .. ',"enqueued_at":' .. batch.now() .. '}')
  end
end

-- Enqueue what waits for an event, once.
function batch.fire(key, event, more, result)
  local facts = redis.call('HMGET', key, event .. '_at', 'on_' .. event)
  if facts[1] then
    return false
  end
  local items = more or {}
  if facts[2] then
    table.insert(items, 1, facts[2])
  end
  batch.push(items, result or 'null')
  redis.call('HSET', key, event .. '_at', batch.now())
  return true
end

-- What the batch has returned, as JSON: a list in the order of a group, the last result of a chain. The list has
-- no place for members that were left out. Nil if it is too large.
function batch.result(key)
  local about = redis.call('HMGET', key, 'kind', 'size', 'if_missing')
  if about[1] ~= 'group' then
    return about[1] == 'chain' and redis.call('HGET', key .. ':results', '0') or 'null'
  end
  local results, size = {}, 0
  if tonumber(about[2]) > batch.MOST_MEMBERS then
    return nil
  end
  for n = 1, about[2] do
    local result = redis.call('HGET', key .. ':results', n - 1)
    if result or about[3] ~= 'ignore' then
      results[#results + 1] = result or 'null'
      size = size + #results[#results]
      if size > batch.MOST_RESULTS then
        return nil
      end
    end
  end
  return '[' .. table.concat(results, ',') .. ']'
end

-- Announce the end of a batch to those who wait for its result, as of a tracked job (track.py).
function batch.announce(id, answer, life)
  if redis.call('HEXISTS', batch.key(id), 'answer') == 1 then
    local stream = PREFIX .. 'pyworkers:result:' .. id
    redis.call('XADD', stream, 'MAXLEN', 1, '*', 'v', answer)
    redis.call('EXPIRE', stream, life)
  end
end

-- The name of a batch among the notes of cancelled jobs: servers refuse the jobs that have its id in `batch`.
function batch.note_of(id)
  return 'batch:' .. id
end

-- Cancel a batch: it takes no more members, and its callbacks of success and death do not fire.
function batch.cancel(id)
  if batch.fire(batch.key(id), 'cancel') then
    batch.announce(id, '{"state":"cancelled","error":"","reason":"cancelled"}', batch.LIFE)
  end
end

-- Have servers refuse the members of a cancelled batch that have not ended.
function batch.refuse(id)
  if batch.left(batch.key(id)) > 0 then
    note(PREFIX .. 'pyworkers:cancelled', batch.note_of(id), batch.NOTE_LIFE)
  end
end

-- The number of members of a cancelled batch that have not ended: its holds keep nothing back.
function batch.left(key)
  local open = tonumber(redis.call('HGET', key, 'open')) or 0
  return redis.call('SCARD', key .. ':members') - open + redis.call('SCARD', key .. ':failed')
end

-- A cancelled batch is complete once all members have ended. Returns its state as a member, as `batch.state`.
function batch.state_cancelled(id)
  local key = batch.key(id)
  if batch.left(key) > 0 then
    return nil
  end
  redis.call('ZREM', PREFIX .. 'pyworkers:cancelled', batch.note_of(id))
  batch.fire(key, 'complete')
  return 'cancelled', true
end

-- Fire what is due. Returns the state of the batch as a member of another one: nil while a member has not run;
-- and its result, if it is done, or true if it is dead or cancelled and will never be done.
function batch.state(id)
  local key = batch.key(id)
  if redis.call('HEXISTS', key, 'cancel_at') == 1 then
    return batch.state_cancelled(id)
  elseif redis.call('SCARD', key .. ':members') > 0 then
    return nil
  end
  local failed, dead = redis.call('SCARD', key .. ':failed'), redis.call('SCARD', key .. ':dead')
  local counts = redis.call('HMGET', key, 'total', 'done', unpack(batch.KINDS))
  local gone = 0
  for n = 3, 2 + #batch.KINDS do
    gone = gone + (counts[n] or 0)
  end
  if not counts[1] or counts[2] + failed + dead + gone ~= tonumber(counts[1]) then
    -- Redis has evicted a set of members: it is unknown which of them have run.
    return nil
  end
  batch.fire(key, 'complete')
  if dead + gone > 0 then
    return 'dead', gone > 0
  elseif failed > 0 then
    return 'failed'
  end
  local result, following = batch.result(key), redis.call('LRANGE', key .. ':then', 0, -1)
  if not result or batch.too_large(following, result) then
    batch.mourn(id, id, 'too large')
    return 'dead', true
  end
  if batch.fire(key, 'success', following, result) then
    redis.call('DEL', key .. ':then')
    redis.call('HSET', key, 'day', 'ended')
    batch.expire(key, batch.LIFE_ENDED)
    batch.announce(id, '{"state":"done","result":' .. result .. '}', batch.LIFE_ENDED)
  end
  return 'done', result
end

-- Count a batch in the one of which it is a member. `told` are those that have been counted for the same end: a batch
-- that another program has written may be its own member.
function batch.tell(id, state, result, told)
  told = told or {}
  local parent = not told[id] and redis.call('HGET', batch.key(id), 'parent')
  if parent then
    told[id] = true
    local space = string.find(parent, ' ', 1, true)
    local place = string.sub(parent, 1, space - 1)
    if state == 'cancelled' and not batch.has(batch.key(string.sub(parent, space + 1)), id) then
      -- It was skipped there, or counted before.
      return
    end
    if place == '' and state == 'done' then
      result = ''
    end
    return batch.count(string.sub(parent, space + 1), { id }, state, place, result, told)
  end
end

-- Fire what is due for a batch, and count it in the batch of which it is a member.
function batch.conclude(id, told)
  local state, result = batch.state(id)
  if state then
    return batch.tell(id, state, result, told)
  end
end

-- A member has ended and is not done: fire on_death here and in the batches above. `kind` is the kind of its end.
function batch.mourn(id, member, kind)
  local known = {}
  while id and not known[id] do
    known[id] = true
    local key = batch.key(id)
    local facts = redis.call('HMGET', key, 'open', 'cancel_at')
    -- A cancelled batch is counted in the one around it when all its members have ended.
    if not facts[1] or facts[2] then
      return
    end
    if batch.fire(key, 'death') then
      redis.call('HSET', key, 'reason', kind, 'reason_jid', member)
      local answer = { state = 'dead', error = 'a member is ' .. kind, reason = kind, jid = member }
      batch.announce(id, cjson.encode(answer), batch.LIFE)
    end
    local parent = redis.call('HGET', key, 'parent')
    id = parent and string.sub(parent, string.find(parent, ' ', 1, true) + 1)
  end
end

-- A chain ends early: the steps that have not run are skipped, and the members of those that are batches. A hold
-- stays if it is not of such a step. Each batch is visited once: one that another program has written may be
-- its own member.
function batch.skip(id)
  local ids, known = { id }, { [id] = true }
  local place = 1
  while ids[place] do
    local key = batch.key(ids[place])
    for _, member in ipairs(redis.call('SMEMBERS', key .. ':members')) do
      if not batch.is_hold(member) then
        redis.call('SREM', key .. ':members', member)
        batch.go(key, member, 'skipped')
        batch.release(key, member)
        if not known[member] and redis.call('HEXISTS', batch.key(member), 'open') == 1 then
          known[member] = true
          ids[#ids + 1] = member
        end
      end
    end
    place = place + 1
  end
end

-- A member has ended and is not done, `for_good` if it will never be: tell it, and stop the chain.
function batch.stop(id, member, kind, for_good, told)
  local key = batch.key(id)
  batch.mourn(id, member, kind)
  if redis.call('HGET', key, 'kind') == 'chain' then
    if for_good then
      batch.skip(id)
    elseif redis.call('SCARD', key .. ':members') > 0 then
      -- The steps after it wait until it is retried by hand: the batch around the chain does not.
      return batch.tell(id, 'dead', false, told)
    end
  end
  return batch.conclude(id, told)
end

-- Count members: they are 'done', or a single one is 'failed' or 'dead', or one of batch.KINDS, or has a result
-- with its place, from 0; for a batch that is dead, `result` is true if it will never be done. One that is
-- 'replaced' is counted out; from a chain, whose next steps wait for it, it is 'deleted'. Each change counts once:
-- the member leaves a set. Nothing happens for an unknown batch or member: it has expired, was evicted or deleted,
-- or the member is done.
function batch.count(id, members, state, place, result, told)
  local key = batch.key(id)
  local open = batch.touch(key)
  local left = open and batch.leave(key, members) or 0
  if left == 0 then
    return
  end
  local member = members[1]
  local ignored = batch.LEFT_OUT[state] and redis.call('HGET', key, 'if_missing') == 'ignore'
  if state == 'replaced' then
    ignored = redis.call('HGET', key, 'kind') ~= 'chain'
    state = 'deleted'
  end
  if state == 'failed' or state == 'dead' then
    batch.put(key, ':' .. state, member)
  elseif state == 'done' then
    redis.call('HINCRBY', key, 'done', left)
    if result ~= '' then
      redis.call('HSET', key .. ':results', place, result)
      redis.call('EXPIRE', key .. ':results', batch.LIFE)
    end
  elseif ignored then
    redis.call('HINCRBY', key, 'total', -1)
  else
    batch.go(key, member, state)
  end
  if open ~= '0' then
    for _, one in ipairs(members) do
      batch.release(key, one)
    end
  end
  if state == 'done' or state == 'failed' or ignored then
    return batch.conclude(id, told)
  end
  return batch.stop(id, member, state, state ~= 'dead' or result == true, told)
end

return batch
end

-- Shared by the scripts that other programs send: Redis takes fewer forms of a number than Lua does, and refuses the
-- others in the middle of a script, after earlier writes.

-- A whole number from 1, without zeros in front.
local function is_positive(value)
  return string.find(value, '^[1-9]%d*$') ~= nil
end

-- A time to live that Redis takes.
local function is_life(value)
  return is_positive(value) and #value <= 15
end

-- A score: no infinity, and no number that only its exponent makes 0.
local function is_score(value)
  local number, digits = tonumber(value), string.match(value, '^-?([%d.]+)')
  if not (number and digits and string.find(value, '^[%d.eE+-]+$')) or math.abs(number) == math.huge then
    return false
  end
  return number ~= 0 or not string.find(digits, '[1-9]')
end

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
