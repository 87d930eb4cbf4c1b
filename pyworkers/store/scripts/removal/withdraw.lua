-- Delete waiting jobs from their queue, or move them to dead, or to the end of the queue that is popped next. The
-- removal is the receipt: a job that a server or another client has taken meanwhile is left alone. Each job comes
-- with the index at which it was seen, because a search through a million jobs for each of them would block Redis
-- for minutes.
--
-- KEYS 1 queue  2 dead  3 deletions (hash)  4 kept jobs of this deletion (hash)  then the keys of each effect
-- ARGV 1 now  2 oldest score kept in dead  3 members kept in dead  4 '1' to bury the jobs,
--        '2' to have them popped next, the last of them first
--      5 place of the last argument of the jobs  6 id of the deletion, '' to keep nothing  7 word of the place
--      then for each job: job, index
--      then for each effect: place of its job, counted from 1, name and arguments (protocol/effects)
-- Returns {number taken, places of jobs to send again in a new call, from 1}, or {-1} if dead is not a sorted
-- set: then nothing was done.

local MOST_SCANS = 2

if ARGV[4] == '1' and not holds(KEYS[2], 'zset') then
  return { -1 }
end

local kept = ARGV[6] ~= '' and keeping(KEYS[3], KEYS[4], ARGV[6])
allow_writes(KEYS[2])
local scans = 0

-- The index of a job, searched around the expected one; nil if it is not in the queue, false if unknown.
local function find(raw, expected)
  local index = index_near(KEYS[1], raw, expected)
  if index then
    return index
  end
  if scans == MOST_SCANS then
    return false
  end
  scans = scans + 1
  return redis.call('LPOS', KEYS[1], raw) or nil
end

local length = redis.call('LLEN', KEYS[1])
local taken, again, gone = {}, {}, {}
local shift, lowest, highest = 0, length, 0
local last = tonumber(ARGV[5])
for i = 8, last, 2 do
  local seen_at = tonumber(ARGV[i + 1])
  local index = find(ARGV[i], math.max(0, seen_at + shift))
  if index then
    shift = index - seen_at
    lowest, highest = math.min(lowest, index), math.max(highest, index)
    redis.call('LSET', KEYS[1], index, GONE)
    taken[#taken + 1] = ARGV[i]
    gone[(i - 6) / 2] = true
  elseif index == false then
    again[#again + 1] = (i - 6) / 2
  end
end
if #taken > 0 then
  local from_right = length - lowest < highest
  redis.call('LREM', KEYS[1], from_right and -#taken or #taken, GONE)
end
if ARGV[4] == '1' then
  for _, raw in ipairs(taken) do
    bury(KEYS[2], ARGV[1], ARGV[2], ARGV[3], raw)
  end
elseif kept then
  for _, raw in ipairs(taken) do
    kept.add(ARGV[7], '', raw)
  end
  kept.note()
elseif ARGV[4] == '2' then
  for _, raw in ipairs(taken) do
    redis.call('RPUSH', KEYS[1], raw)
  end
end
apply_effects(5, last + 1, function(place)
  return gone[place]
end)
return { #taken, again }
