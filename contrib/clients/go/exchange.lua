-- pyworkers exchange, wire 1
--
-- Settle outcomes and take more jobs, for the queues of one group, in one round trip.
--
-- KEYS 1 retry  2 schedule  3 dead  4 tombstone of this incarnation  5 owners
--      then for each queue of the group: queue, in-progress list
--      then the keys of each effect
-- ARGV 1 number of jobs wanted  2 now  3 oldest score kept in dead  4 members kept in dead
--      5 identity  6 place of the last key of the queues  7 place of the last argument of the outcomes
--      8 number of the queues to take from
--      then in their order the place of each, counted from 1
--      then for each outcome: code and raw; for a fate that keeps the job also at and payload ('' is raw);
--      the code is the fate (outcome.py) plus 20 times the place of its queue
--      if 10 is added to the code, there are other arguments instead of raw, for a large job (extract.py):
--      length of the list, or else the outcome is not settled; probable index of the job; its length; its
--      first and last bytes; samples of it
--      a note (fate 7) has the effects alone: its job stays, and must be in the list
--      two numbers after the code: the job is a done member of a batch; they say how far from its end the id of
--      the batch and the id of the job begin
--      then for each effect: place of its outcome, counted from 1, name and arguments (protocol/effects)
-- Returns { places of the outcomes whose job was not in the list, counted from 1,
--           for each of the queues to take from the jobs taken; the last ones are left out if there are enough,
--           and, only if one of the next five is not empty:
--           the error that stopped the fetch, or '': outcomes settled and jobs taken before it count,
--           place of each queue whose keys Redis refuses, and the error, in turn,
--           places of the outcomes that are not settled, because of the keys of their queue, or because the list
--           of a large job has another length,
--           place and error of each effect that failed, in turn,
--           place of the first member and error of each batch that could not be counted, in turn }
--      or {} when a peer has recovered the lists of this incarnation: nothing was taken;
--      or an error, before anything was done, when the key of a sorted set has the wrong type.

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

-- Shared by the scripts that note the runs of cron entries: the loader puts it in front of them.

-- The runs that are kept of a cron entry.
local MOST_RUNS = 50

-- Delete the runs of a cron entry with the earliest slots; a slot is in front of the name of its run.
local function forget_runs(key)
  local names = redis.call('HKEYS', key)
  table.sort(names, function(one, other)
    return (tonumber(string.match(one, '^%d+')) or 0) < (tonumber(string.match(other, '^%d+')) or 0)
  end)
  for n = 1, #names - MOST_RUNS do
    redis.call('HDEL', key, names[n])
  end
end

-- Add facts, a JSON object, to a run. A key of another type is not changed.
local function note_run(key, run, facts, life)
  if not holds(key, 'hash') then
    return
  end
  -- Another program may have written anything.
  local read, known = pcall(cjson.decode, redis.call('HGET', key, run) or '{}')
  known = read and type(known) == 'table' and known or {}
  for name, value in pairs(cjson.decode(facts)) do
    known[name] = value
  end
  redis.call('HSET', key, run, cjson.encode(known))
  redis.call('EXPIRE', key, life)
  if redis.call('HLEN', key) > MOST_RUNS then
    forget_runs(key)
  end
end
-- Shared by the scripts that free the slots of limits: the loader puts it in front of them.

-- Pass a free slot to the job that has waited longest: it leaves `schedule` for the head of its queue, and is
-- called from now on. A job that is no longer in `schedule` is skipped. Returns true if a job was called.
--
-- A member of `waiting` is the queue and the id of a job. Its score is the score of the job in `schedule`, exact to the
-- microsecond and therefore unique; for a called job it is the time of the call.
local function call_next(waiting, schedule, queues, now)
  while true do
    local first = redis.call('ZRANGEBYSCORE', waiting, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local member, score = first[1], first[2]
    if not member then
      return false
    end
    local queue, jid = string.match(member, '^(%S+) (.*)$')
    local plain = jid and string.find(jid, '^[%w-]+$')
    for _, job in ipairs(queue and redis.call('ZRANGEBYSCORE', schedule, score, score) or {}) do
      -- Another job may be due at the same time.
      if not plain or string.find(job, jid, 1, true) then
        local list = PREFIX .. 'queue:' .. queue
        redis.call('ZADD', waiting, now, member)
        if holds(list, 'list') then
          redis.call('SADD', queues, queue)
          redis.call('RPUSH', list, job)
          redis.call('ZREM', schedule, job)
        else
          redis.call('ZADD', schedule, now, job)
        end
        return true
      end
    end
    redis.call('ZREM', waiting, member)
  end
end

-- Shared by the scripts that remove jobs: the loader puts it in front of them. An effect is a write that belongs
-- to the end of a job (protocol/effects); it is applied only if the script has removed that job.

local function reason_of(why)
  return type(why) == 'table' and why.err or tostring(why)
end

-- Add lines to the log of a job (protocol/flow/joblog.py), the last of which says what is there: `n` is the number of
-- bytes since the first line, `run` and `i` name the line. Lines that are there are not added again.
local LOG_BYTES, LOG_OVERHEAD = 65536, 64
local function append_log(key, lines, run, first)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local fields = last and last[2] or {}
  local size = tonumber(fields[4]) or 0
  local seen = run ~= '' and fields[6] == run and tonumber(fields[8]) or -1
  local number = tonumber(first)
  for line in string.gmatch(lines, '[^\n]+') do
    if number > seen then
      size = size + #line + LOG_OVERHEAD
      redis.call('XADD', key, '*', 'v', line, 'n', size, 'run', run, 'i', number)
    end
    number = number + 1
  end
  while true do
    local head = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
    if not head or size - (tonumber(head[2][4]) or 0) + #head[2][2] + LOG_OVERHEAD <= LOG_BYTES then
      return
    end
    redis.call('XDEL', key, head[1])
  end
end

-- Apply the effects whose keys start at KEYS k and whose arguments start at ARGV a: for each the place of its
-- job, counted from 1, its name and its arguments. `applies(place)` is true if that job was removed.
-- Returns place and error of each effect that failed, in turn; the others are applied nevertheless.
local function apply_effects(k, a, applies)
  local function store_fields(k, a)
    for name, value in pairs(cjson.decode(ARGV[a])) do
      redis.call('HSET', KEYS[k], name, value)
    end
    redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
  end
  -- Name → number of keys, number of arguments, function; k and a are the places of the first of each.
  local made
  local effects = {
    NoteRun = { 1, 3, function(k, a)
      note_run(KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2])
    end },
    Unlock = { 1, 1, function(k, a)
      if redis.call('GET', KEYS[k]) == ARGV[a] then
        redis.call('DEL', KEYS[k])
      end
    end },
    FreeSlot = { 1, 1, function(k, a)
      redis.call(redis.call('TYPE', KEYS[k]).ok == 'set' and 'SREM' or 'ZREM', KEYS[k], ARGV[a])
    end },
    PassSlot = { 4, 1, function(k, a)
      if redis.call('ZREM', KEYS[k], ARGV[a]) == 1 then
        call_next(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], clock())
      end
    end },
    NoteStart = { 1, 2, function(k, a)
      redis.call('ZADD', KEYS[k], clock(), ARGV[a])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
    end },
    CountOut = { 3, 3, function(k, a)
      -- Check the types first: otherwise the member would be counted out, and then the push would fail.
      if not (holds(KEYS[k + 1], 'list') and holds(KEYS[k + 2], 'set')) then
        error({ err = 'WRONGTYPE ' .. KEYS[k + 1] .. ' or ' .. KEYS[k + 2] .. ' has the wrong type' })
      end
      if redis.call('HEXISTS', KEYS[k], ARGV[a]) == 1 and redis.call('HINCRBY', KEYS[k], ARGV[a], -1) == 0 then
        redis.call('SADD', KEYS[k + 2], ARGV[a + 1])
        redis.call('LPUSH', KEYS[k + 1], ARGV[a + 2])
      end
    end },
    StoreValue = { 1, 2, function(k, a)
      -- SET itself replaces a key of any type.
      if not holds(KEYS[k], 'string') then
        error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' is not a string' })
      end
      redis.call('SET', KEYS[k], ARGV[a], 'EX', ARGV[a + 1])
    end },
    StoreFields = { 1, 2, store_fields },
    StoreIteration = { 1, 2, store_fields },
    DeleteIteration = { 1, 0, function(k)
      redis.call('DEL', KEYS[k])
    end },
    Announce = { 1, 2, function(k, a)
      redis.call('XADD', KEYS[k], 'MAXLEN', 1, '*', 'v', ARGV[a])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
    end },
    DeleteKey = { 1, 0, function(k)
      redis.call('DEL', KEYS[k])
    end },
    DeleteField = { 1, 1, function(k, a)
      redis.call('HDEL', KEYS[k], ARGV[a])
    end },
    Push = { 2, 2, function(k, a)
      if not (holds(KEYS[k], 'list') and holds(KEYS[k + 1], 'set')) then
        error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' or ' .. KEYS[k + 1] .. ' has the wrong type' })
      end
      redis.call('SADD', KEYS[k + 1], ARGV[a])
      redis.call('LPUSH', KEYS[k], ARGV[a + 1])
    end },
    CountMember = { 2, 5, function(k, a)
      made = made or batches()
      made.count(ARGV[a], { ARGV[a + 1] }, ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    end },
    AppendLog = { 1, 4, function(k, a)
      append_log(KEYS[k], ARGV[a + 2], ARGV[a], ARGV[a + 1])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 3])
    end },
    EndLog = { 1, 2, function(k, a)
      if redis.call('EXISTS', KEYS[k]) == 1 then
        append_log(KEYS[k], ARGV[a], '', 0)
        redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
      end
    end },
    KeepFinished = { 2, 4, function(k, a)
      local ttl = tonumber(ARGV[a + 3])
      redis.call('XADD', KEYS[k], 'MAXLEN', '~', ARGV[a + 2], '*', 'v', ARGV[a + 1])
      local oldest = (tonumber(redis.call('TIME')[1]) - ttl) * 1000
      redis.call('XTRIM', KEYS[k], 'MINID', '~', string.format('%d', math.max(0, oldest)))
      redis.call('EXPIRE', KEYS[k], ttl)
      redis.call('SADD', KEYS[k + 1], ARGV[a])
      if redis.call('TTL', KEYS[k + 1]) < ttl then
        redis.call('EXPIRE', KEYS[k + 1], ttl)
      end
    end },
    HoldHead = { 1, 2, function(k, a)
      local now = redis.call('TIME')
      local till = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[a]
      redis.call('HSET', KEYS[k], 'until', string.format('%d', till), 'head', ARGV[a + 1])
    end },
    PauseQueue = { 1, 1, function(k, a)
      redis.call('SADD', KEYS[k], ARGV[a])
    end },
  }
  local failed = {}
  local place, last = 0, #ARGV
  while a < last do
    local keys, args, apply = unpack(effects[ARGV[a + 1]])
    place = place + 1
    if applies(tonumber(ARGV[a])) then
      local done, why = pcall(apply, k, a + 2)
      if not done then
        failed[#failed + 1] = place
        failed[#failed + 1] = reason_of(why)
      end
    end
    k = k + keys
    a = a + 2 + args
  end
  return failed
end

-- For each fate that keeps a job in a sorted set: the place of its key in KEYS.
local zsets = { [1] = 1, [2] = 3, [5] = 2 }
local REQUEUE, NOTE = 4, 7

local refused, reasons = {}, {}
local function refuse(queue, reason)
  if not reasons[queue] then
    reasons[queue] = reason
    refused[#refused + 1] = queue
    refused[#refused + 1] = reason
  end
end

-- What an outcome with this code does; made for the codes that occur, once each. The fields have numbers,
-- because a table with names costs a microsecond more.
local LIST, ARGUMENTS, KEY, FATE, QUEUE, STUCK, LARGE, BATCH, JID = 1, 2, 3, 4, 5, 6, 7, 8, 9
local UNSURE = 'UNSURE'
local misplaced
local steps = {}
local function step_of(name)
  local number, batch, jid = string.match(name, '^(%d+) (%d+) (%d+)$')
  local code = tonumber(number or name)
  local fate = code % 10
  local large = code % 20 >= 10
  local queue = (code - code % 20) / 20
  local step = { KEYS[5 + 2 * queue], large and 7 or 2, false, fate, queue, false, large, batch and -batch, jid and -jid }
  local zset = zsets[fate]
  if zset then
    step[KEY], step[ARGUMENTS] = KEYS[zset], step[ARGUMENTS] + 2
    if not holds(step[KEY], 'zset') then
      misplaced = step[KEY]
    end
  elseif fate == REQUEUE then
    step[KEY], step[ARGUMENTS] = KEYS[4 + 2 * queue], step[ARGUMENTS] + 2
    if not holds(step[KEY], 'list') then
      step[STUCK] = 'WRONGTYPE ' .. step[KEY] .. ' is not a list'
    end
  end
  steps[name] = step
  return step
end

local first, last = 9 + ARGV[8], tonumber(ARGV[7])
local i = first
while i < last do
  local step = steps[ARGV[i]] or step_of(ARGV[i])
  if step[LARGE] and not step[STUCK] and redis.pcall('LLEN', step[LIST]) ~= tonumber(ARGV[i + 1]) then
    step[STUCK] = UNSURE
  end
  i = i + step[ARGUMENTS]
end
if misplaced then
  return redis.error_reply('WRONGTYPE ' .. misplaced .. ' is not a zset')
end

-- The bytes of the large job whose arguments follow ARGV i; nil if it is not in the list.
local EDGE, SAMPLES, SAMPLE = 1024, 32, 16
local function find(list, i)
  local hint, length = tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local room = length - 2 * EDGE - SAMPLE
  local function at(index)
    local entry = redis.call('LINDEX', list, index)
    if not entry or #entry ~= length then
      return nil
    end
    if string.sub(entry, 1, EDGE) ~= ARGV[i + 4] or string.sub(entry, -EDGE) ~= ARGV[i + 5] then
      return nil
    end
    local samples = {}
    for n = 0, SAMPLES - 1 do
      local start = EDGE + math.floor(n * room / (SAMPLES - 1))
      samples[n + 1] = string.sub(entry, start + 1, start + SAMPLE)
    end
    return table.concat(samples) == ARGV[i + 6] and entry or nil
  end
  local found = at(hint)
  local index, number = -1, redis.call('LLEN', list)
  while not found and index >= -number do
    found = index ~= hint and at(index) or nil
    index = index - 1
  end
  return found
end

-- 1 if a job is in the list, false if not, or an error. A write that changes nothing (LTRIM) replaces the
-- removal: if Redis refuses all writes, it refuses this one, and it refuses none for lack of memory after it.
local function contains(list, raw)
  local place = redis.pcall('LPOS', list, raw, 'RANK', -1)
  if type(place) ~= 'number' then
    return place
  end
  local refusal = redis.pcall('LTRIM', list, 0, -1)
  return refusal.err and refusal or 1
end

-- The members that are done, by batch: the members of one batch are counted together.
local ID, MOST = 24, 4000 -- the length of an id (batch.py); the arguments of a command that Lua's stack holds
local counts, latest = {}, {}
local function count(batch, jid, ordinal)
  local members = latest[batch]
  if not members or #members == MOST then
    members = {}
    latest[batch] = members
    counts[#counts + 1] = { batch, ordinal, members }
  end
  members[#members + 1] = jid
end

local stale, left = {}, {}
local ordinal = 0
i = first
while i < last do
  ordinal = ordinal + 1
  local step = steps[ARGV[i]]
  local raw, key = ARGV[i + 1], step[KEY]
  -- The removal is the receipt: the steps after it happen once, even if the batch is sent several times.
  local removed = step[STUCK]
  if not removed then
    if step[LARGE] then
      raw = find(step[LIST], i)
    end
    if step[FATE] == NOTE then
      removed = raw and contains(step[LIST], raw) or 0
    else
      removed = raw and redis.pcall('LREM', step[LIST], -1, raw) or 0
    end
  end
  if removed == 1 then
    local batch, jid = step[BATCH], step[JID]
    if batch then
      count(string.sub(raw, batch, batch + ID - 1), string.sub(raw, jid, jid + ID - 1), ordinal)
    end
    if key then
      local after = i + step[ARGUMENTS]
      local at, payload = ARGV[after - 2], ARGV[after - 1]
      if payload == '' then
        payload = raw
      end
      if step[FATE] == REQUEUE then
        redis.call('RPUSH', key, payload)
      elseif step[FATE] == 2 then
        bury(key, ARGV[2], ARGV[3], ARGV[4], payload)
      else
        keep(key, at, payload)
      end
    end
  elseif removed == 0 then
    stale[#stale + 1] = ordinal
  elseif removed == UNSURE then
    left[#left + 1] = ordinal
  elseif step[STUCK] or string.find(removed.err, 'WRONGTYPE') then
    left[#left + 1] = ordinal
    refuse(step[QUEUE], step[STUCK] or removed.err)
  else
    -- Redis refuses all writes, and so it has refused the first one: nothing was done.
    return removed
  end
  i = i + step[ARGUMENTS]
end

-- Effects are applied only if the job was removed above. That removal is a write, so Redis refuses none of
-- them for lack of memory.
local failed, uncounted = {}, {}
if #counts > 0 then
  local batch = batches()
  for _, group in ipairs(counts) do
    local done, why = pcall(batch.count, group[1], group[3], 'done', '-1', '')
    if not done then
      uncounted[#uncounted + 1] = group[2]
      uncounted[#uncounted + 1] = reason_of(why)
    end
  end
end
if last < #ARGV then
  local unsettled = {}
  for _, places in ipairs({ stale, left }) do
    for _, place in ipairs(places) do
      unsettled[place] = true
    end
  end
  failed = apply_effects(ARGV[6] + 1, last + 1, function(place)
    return not unsettled[place]
  end)
end

-- When maxmemory is reached, Redis refuses the first write of a script if it could need memory, but no write
-- after another one. A move needs no memory, and jobs must continue, because only they free memory: so do a
-- write that changes nothing (LTRIM) first.
-- Redis 6.2 puts "@user_script: 54: " before the code.
local function take(queue, list)
  local raw = redis.pcall('RPOPLPUSH', queue, list)
  if type(raw) == 'table' and string.find(raw.err or '', '%f[%u]OOM ') then
    redis.call('LTRIM', list, 0, -1)
    raw = redis.pcall('RPOPLPUSH', queue, list)
  end
  return raw
end

local taken = {}
local function reply(err)
  if err or #refused > 0 or #left > 0 or #failed > 0 or #uncounted > 0 then
    return { stale, taken, err or '', refused, left, failed, uncounted }
  end
  return { stale, taken }
end

local wanted = tonumber(ARGV[1])
if wanted > 0 then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    return {}
  end
  -- A job may only go to a registered owner: after a crash, peers search only the lists of registered owners.
  if redis.call('HEXISTS', KEYS[5], ARGV[5]) == 0 then
    return reply('UNREGISTERED this server is not registered yet, or no longer')
  end
  for n = 9, first - 1 do
    local place = tonumber(ARGV[n])
    local queue, list = KEYS[4 + 2 * place], KEYS[5 + 2 * place]
    local jobs = {}
    taken[#taken + 1] = jobs
    for n = 1, wanted do
      local raw = take(queue, list)
      if not raw then
        break
      end
      if type(raw) == 'table' then
        refuse(place, raw.err)
        break
      end
      jobs[n] = raw
    end
    wanted = wanted - #jobs
    if wanted == 0 then
      break
    end
  end
end
return reply()
