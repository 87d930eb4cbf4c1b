-- Read one page of a sorted set, after a given member. The order is Redis' order, by score and then by
-- bytes, so a page begins in the right place even if members before it were added or removed.
--
-- KEYS 1 sorted set
-- ARGV 1 most members  2 'up' or 'down'  then, except for the first page: score and bytes of the last member
-- Returns member, score, member, score …

-- Lua compares texts by the locale; Redis compares bytes.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- The number of members before this place, and 1 if the member is at this place, else 0.
local function rank(score, member)
  local present = redis.call('ZSCORE', KEYS[1], member)
  if present and tonumber(present) == tonumber(score) then
    return redis.call('ZRANK', KEYS[1], member), 1
  end
  local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', KEYS[1], '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(redis.call('ZRANGE', KEYS[1], middle, middle)[1], member) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low, 0
end

local up = ARGV[2] == 'up'
local command = up and 'ZRANGE' or 'ZREVRANGE'
local first = 0
if ARGV[3] then
  local before, at = rank(ARGV[3], ARGV[4])
  first = up and before + at or redis.call('ZCARD', KEYS[1]) - before
end
return redis.call(command, KEYS[1], first, first + ARGV[1] - 1, 'WITHSCORES')
