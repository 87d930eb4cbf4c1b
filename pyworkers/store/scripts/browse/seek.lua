-- Find the jobs in many lists whose bytes contain a text, one list after the other. It only reads.
--
-- KEYS the lists
-- ARGV 1 the text; '' for all jobs  2 most bytes to read, about: the list at which it reaches them is the last
-- Returns {lists read,  {the place of the last one, from 1, if it has more jobs than were read},
--          {for each job found: the place of its list, and its bytes}}.

-- Most lists hold a few jobs, which one command reads. The jobs of a command are copied into Lua's memory.
local FIRST, MOST_AT_ONCE, MOST_BYTES = 20, 2000, 1048576

local text, left = ARGV[1], tonumber(ARGV[2])
local found = {}

-- Read `count` jobs from `first` on. Returns where to go on, and with how many; nothing at the end of the list.
local function read(place, first, count)
  local jobs = redis.pcall('LRANGE', KEYS[place], first, first + count - 1)
  local bytes = 0
  for _, raw in ipairs(jobs.err and {} or jobs) do
    bytes = bytes + #raw
    if raw:find(text, 1, true) then
      found[#found + 1] = place
      found[#found + 1] = raw
    end
  end
  left = left - bytes
  if not jobs.err and #jobs == count then
    return first + count, math.max(1, math.min(MOST_AT_ONCE, math.floor(MOST_BYTES * count / (bytes + 1))))
  end
end

for place = 1, #KEYS do
  local first, count = 0, FIRST
  while first and left > 0 do
    first, count = read(place, first, count)
  end
  if left <= 0 then
    return { place, first and { place } or {}, found }
  end
end
return { #KEYS, {}, found }
