-- pyworkers push, wire 1
--
-- Push jobs, all or none, in one round trip: with their locks, the limit of a queue, their statuses, their membership
-- in batches, now or for later. A job that asks for none of these needs no script: SADD queues NAME and LPUSH
-- queue:NAME JOB, or ZADD schedule AT JOB, in a transaction.
--
-- KEYS 1 queues  2 schedule  then the list of each queue below
--      then for each job with a lock: pyworkers:unique:KEY and pyworkers:unique:KEY:at
--      last, on a Redis Cluster: pyworkers:slot, which never exists: so the script is refused as a whole while the
--      slot moves
-- ARGV 1 number of jobs, at most 1000  2 number of queues, then their names
--      then for each job: place of its queue among these names, from 1; its jid; the job, as JSON; the number of its
--      options; then the name and the value of each option, in any order
--      last: the prefix of all keys, or ''
-- Options
--      at            time at which it is due, in epoch seconds; without it: now
--      max_waiting   with this many jobs in its queue, nothing is pushed; a job for later does not wait in the queue
--      lock          life of its lock in ms, from 1: the life that was asked for, and the time until the job is due
--      on_duplicate  'skip', 'raise' or 'replace'; without it: 'skip'
--      status        life of its status in s until a server changes it: 2592000, and the time until the job is due; at
--                    most 1000000000
--      history       '1': the status keeps the job as it is pushed
--      batch         id of its batch
--      run           for jobs of cron entries, by pyworkers itself: where their run is noted, as a JSON list
-- Returns { 'pushed', for each job '', or the jid of the job that holds its lock: then it was not pushed }
--      or, and nothing was pushed:
--      { 'full', place of the first job without room, from 1, with at most how many jobs in its queue there is room for all
--      jobs of the call; below 0: never }
--      { 'duplicate', place of the job, jid of the job that holds its lock }
--      { 'batch', place of the job, 'unknown', 'ended' or 'cancelled' }
--      or an error: ERR for arguments that are not these, WRONGTYPE for a key of another type.

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
return (push_jobs(1, 1))
