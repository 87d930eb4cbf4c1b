-- Change a job where it waits, on request: its bytes, its time, or both, with its lock and its status. The stored bytes
-- are the receipt: a job that has started, moved or changed meanwhile is left alone. One in a queue keeps its place,
-- unless it gets a time: then it moves to schedule, as a dead one does.
--
-- KEYS 1 queue, or sorted set  2 schedule  3 state of the order of the queue (hash)
--      4 … 7 its lock, the lock of the new bytes, and the key of the score of each, if it has a lock
--      then the keys of each effect
-- ARGV 1 'list' or 'zset'  2 index at which it was seen in a queue  3 the job  4 the new bytes
--      5 the new time, '' to keep its place  6 key among KEYS to which it goes
--      7 jid  8 life of the lock in ms; 0: it has none  9 '1' if it must have the lock
--      then for each effect: 1, name and arguments (protocol/effects)
-- Returns 'edited' and the length of the stored bytes; or, and nothing was changed: 'gone', 'ordered' for a new time in
-- an ordered queue, 'duplicate' and the jid of the job that holds the lock, or 'wrong' and a key of another type.

local kind, raw, payload, at = ARGV[1], ARGV[3], ARGV[4], ARGV[5]
local from, to, jid, life = KEYS[1], KEYS[tonumber(ARGV[6])], ARGV[7], tonumber(ARGV[8])
local stays = from == to
-- As it is, a job may never end, and free its memory.
allow_writes(KEYS[2])
local first_effect = life > 0 and 8 or 4

if not holds(from, kind) then
  return { 'wrong', from }
elseif not stays and not holds(to, 'zset') then
  return { 'wrong', to }
end
local index, score
if kind == 'list' then
  index = index_near(from, raw, tonumber(ARGV[2])) or redis.call('LPOS', from, raw)
else
  score = redis.call('ZSCORE', from, raw)
end
if not (index or score) then
  return { 'gone' }
elseif kind == 'list' and not stays and redis.call('EXISTS', KEYS[3]) == 1 then
  return { 'ordered' }
end

local due = at ~= '' and at or score
if life > 0 then
  local old, new = KEYS[4], KEYS[5]
  local holder = redis.call('GET', new)
  if ARGV[9] == '1' and holder and holder ~= jid then
    return { 'duplicate', holder }
  end
  if holder == jid then
    life = math.max(life, redis.call('PTTL', new))
  end
  if ARGV[9] == '1' or holder == jid then
    -- With its score, a newer job may replace this one while it is scheduled.
    local replaced = redis.call('EXISTS', KEYS[6]) == 1
    if old ~= new and redis.call('GET', old) == jid then
      redis.call('DEL', old, KEYS[6])
    end
    redis.call('SET', new, jid, 'PX', string.format('%d', life))
    if replaced and due then
      redis.call('SET', KEYS[7], due, 'PX', string.format('%d', life))
    else
      redis.call('DEL', KEYS[7])
    end
    local own = PREFIX .. 'pyworkers:'
    if string.sub(new, -7) ~= '|expiry' and holds(own .. 'locks', 'set') then
      redis.call('SADD', own .. 'locks', string.sub(new, #own + 1))
    end
  end
end

if kind == 'list' and stays then
  redis.call('LSET', from, index, payload)
  -- A failed job at the head of an ordered queue waits for its next try.
  if redis.call('HGET', KEYS[3], 'head') == redis.sha1hex(raw) then
    redis.call('HSET', KEYS[3], 'head', redis.sha1hex(payload))
  end
else
  if kind == 'list' then
    take_from(from, index)
  else
    redis.call('ZREM', from, raw)
  end
  -- As in `keep`: these bytes may belong to another job.
  while redis.call('ZSCORE', to, payload) do
    payload = payload .. ' '
  end
  redis.call('ZADD', to, due, payload)
end
apply_effects(first_effect, 10, function()
  return true
end)
return { 'edited', #payload }
