-- Strike off the jobs in one page of a list, a sorted set, or a hash of running jobs (Sidekiq's).
--
-- A list is read from its left end: jobs leave it at the right, and others move to the right when a producer
-- pushes. When jobs are deleted, those that are not read yet move to the left. So the page begins behind the jobs
-- that were read last, at their present place.
--
-- KEYS 1 turn  2 missing  3 list, sorted set or hash
-- ARGV 1 token  2 life of the turn in ms  3 place: an index or a cursor, '0' at first
--      then for each of some jobs read last, in a list: its distance from the place, and the job
-- Returns { number of jobs that are still missing, next place, or '' at the end, or 'lost' if none of these jobs
-- is there, then distance and job as above }, or nothing without the turn.

if not sweeping() then
  return nil
end
local MOST_JOBS, MOST_BYTES, REACH = 1000, 1048576, 10
local last = tonumber(ARGV[#ARGV - 1])
local ids = {}

-- The place behind the jobs that were read last; nil if none of them is found around it.
local function continued(place)
  if #ARGV < 4 or redis.call('LINDEX', KEYS[3], place - ARGV[4]) == ARGV[5] then
    return place
  end
  for _, number in ipairs({ 1, REACH }) do
    local window = {}
    around(KEYS[3], place, number * last, function(index, raw)
      window[index] = raw
    end)
    for n = 4, #ARGV, 2 do
      local nearest
      for index, raw in pairs(window) do
        local found = index + ARGV[n]
        if raw == ARGV[n + 1] and (not nearest or math.abs(found - place) < math.abs(nearest - place)) then
          nearest = found
        end
      end
      if nearest then
        return nearest
      end
    end
  end
end

local kind = redis.call('TYPE', KEYS[3]).ok
local place, anchors = '', {}
if kind == 'list' then
  local first = continued(tonumber(ARGV[3]))
  if not first then
    return { redis.call('HLEN', KEYS[2]), 'lost' }
  end
  local raws, ended = page_of(KEYS[3], true, first, MOST_JOBS, MOST_BYTES)
  for _, raw in ipairs(raws) do
    add_ids(raw, ids)
  end
  if not ended then
    place = string.format('%d', first + #raws)
    for part = 0, 3 do
      local index = math.max(1, math.ceil(#raws * (1 - part / 3)))
      anchors[#anchors + 1] = #raws - index + 1
      anchors[#anchors + 1] = raws[index]
    end
  end
elseif kind == 'zset' then
  place = scan(KEYS[3], ARGV[3], MOST_JOBS, MOST_BYTES, function(raw)
    add_ids(raw, ids)
  end)
  place = place ~= '0' and place or ''
elseif kind == 'hash' then
  for _, text in ipairs(redis.call('HVALS', KEYS[3])) do
    local known, about = pcall(cjson.decode, text)
    if known and type(about) == 'table' then
      if type(about.payload) == 'string' then
        add_ids(about.payload, ids)
      else
        add_inner(about, ids)
      end
    end
  end
end
return { strike(ids), place, unpack(anchors) }
