-- Find the jobs in many lists whose bytes contain a text, one list after the other. It only reads.
--
-- KEYS the lists
-- ARGV 1 the text; '' for all jobs  2 most bytes to read, about: the list at which it reaches them is the last
-- Returns {lists read,  {the place of the last one, from 1, if it has more jobs than were read},
--          {for each job found: the place of its list, and its bytes}}.

local text, left = ARGV[1], tonumber(ARGV[2])
local found = {}

local function seek(place, key)
  return walk(key, 'list', true, 0, math.huge, left, function(_, raw)
    left = left - #raw
    if raw:find(text, 1, true) then
      found[#found + 1] = place
      found[#found + 1] = raw
    end
  end)
end

for place, key in ipairs(KEYS) do
  -- Almost all are lists: no command asks for the type of each.
  local is_read, at, ended = pcall(seek, place, key)
  if not is_read and redis.call('TYPE', key).ok == 'list' then
    error(at)
  end
  if left <= 0 then
    return { place, ended and {} or { place }, found }
  end
end
return { #KEYS, {}, found }
