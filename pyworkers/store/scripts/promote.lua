-- Move due jobs from a sorted set into their queues, and return the members to move in the next call. A
-- member is moved if it still has a score, which is the receipt: Sidekiq's pollers may have removed it. Of
-- several masters, one has the turn to read the due members; the others would read the same ones.
--
-- A member is removed only after its job is in the target key, because an error does not undo earlier writes.
--
-- KEYS 1 sorted set  2 turn  3 dead  4 queues  5… the list of each queue below
-- ARGV 1 now  2 identity  3 life of a turn in ms  4 members wanted  5 score for members of broken queues
--      6 oldest score kept in dead  7 members kept in dead
--      then for each queue: its name ('': bury the members), their number, members, payloads ('': the member)
-- Returns {number moved, names of queues whose keys are not lists, next score above now or '', ms until the
-- end of another master's turn or 0, due members}.

local zset, now = KEYS[1], ARGV[1]
local moved, broken = 0, {}
-- Due jobs must run, because only they free memory.
allow_writes(zset)

-- The places in ARGV, from first to last, of members that still have a score.
local function present(first, last)
  local places = {}
  for i, score in ipairs(redis.call('ZMSCORE', zset, unpack(ARGV, first, last))) do
    if score then
      places[#places + 1] = first + i - 1
    end
  end
  return places
end

local function at(places, offset)
  local found = {}
  for i, place in ipairs(places) do
    found[i] = ARGV[place + offset]
  end
  return found
end

local position, list = 8, 5
while ARGV[position] do
  local name, count = ARGV[position], tonumber(ARGV[position + 1])
  local places = present(position + 2, position + 1 + count)
  local members = at(places, 0)
  if name == '' then
    for _, place in ipairs(places) do
      local member, payload = ARGV[place], ARGV[place + count]
      bury(KEYS[3], now, ARGV[6], ARGV[7], payload ~= '' and payload or member)
      moved = moved + redis.call('ZREM', zset, member)
    end
  else
    local kind = redis.call('TYPE', KEYS[list]).ok
    if kind ~= 'list' and kind ~= 'none' then
      broken[#broken + 1] = name
      for _, member in ipairs(members) do
        redis.call('ZADD', zset, 'XX', ARGV[5], member)
      end
    elseif #members > 0 then
      redis.call('SADD', KEYS[4], name)
      redis.call('LPUSH', KEYS[list], unpack(at(places, count)))
      moved = moved + redis.call('ZREM', zset, unpack(members))
    end
    list = list + 1
  end
  position = position + 2 + 2 * count
end

local due, others_ms = {}, 0
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[2] then
  others_ms = math.max(redis.call('PTTL', KEYS[2]), 0)
end
if others_ms == 0 and tonumber(ARGV[4]) > 0 then
  local left, wanted = PAGE_BYTES, math.min(FIRST, ARGV[4])
  while wanted > 0 do
    local some = redis.call('ZRANGEBYSCORE', zset, '-inf', now, 'LIMIT', #due, wanted)
    for _, member in ipairs(some) do
      due[#due + 1] = member
      left = left - #member
    end
    local ended = #some < wanted or left <= 0
    wanted = ended and 0 or math.min(ARGV[4] - #due, next_number(wanted, some, left))
  end
  if #due > 0 then
    redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
  elseif holder then
    redis.call('DEL', KEYS[2])
  end
end
local upcoming = redis.call('ZRANGEBYSCORE', zset, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return {moved, broken, upcoming[2] or '', others_ms, due}
