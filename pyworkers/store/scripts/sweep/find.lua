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
-- Redis counts from an end of a list to each slice. Jobs are about as large as the jobs of the last page.
local last = tonumber(ARGV[#ARGV - 1])
local PER_SLICE = math.max(50, #ARGV > 3 and math.floor(last / 4) or 0)
local ids, jobs, bytes = {}, 0, 0

local function read(raws, step)
  for n = 1, #raws, step do
    add_ids(raws[n], ids)
    bytes = bytes + #raws[n]
    jobs = jobs + 1
  end
end

local function full()
  return jobs >= MOST_JOBS or bytes >= MOST_BYTES
end

-- The place behind the jobs that were read last; nil if none of them is found around it.
local function continued(place)
  if #ARGV < 4 or redis.call('LINDEX', KEYS[3], place - ARGV[4]) == ARGV[5] then
    return place
  end
  local pages = { 1, REACH }
  for _, number in ipairs(pages) do
    local reach = number * last
    local first = math.max(0, place - reach)
    local window = redis.call('LRANGE', KEYS[3], first, place + reach)
    for n = 4, #ARGV, 2 do
      local nearest
      for index, raw in ipairs(window) do
        local found = first + index - 1 + ARGV[n]
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
  local raws, slice = {}, {}
  repeat
    slice = redis.call('LRANGE', KEYS[3], first + jobs, first + jobs + PER_SLICE - 1)
    read(slice, 1)
    for _, raw in ipairs(slice) do
      raws[#raws + 1] = raw
    end
  until #slice < PER_SLICE or full()
  if #slice == PER_SLICE then
    place = string.format('%d', first + jobs)
    for part = 0, 3 do
      local index = math.max(1, math.ceil(jobs * (1 - part / 3)))
      anchors[#anchors + 1] = jobs - index + 1
      anchors[#anchors + 1] = raws[index]
    end
  end
elseif kind == 'zset' then
  -- A scan returns each member that stays.
  place = ARGV[3]
  repeat
    local page = redis.call('ZSCAN', KEYS[3], place, 'COUNT', PER_SLICE)
    place = page[1]
    read(page[2], 2)
  until place == '0' or full()
  place = place ~= '0' and place or ''
elseif kind == 'hash' then
  for _, text in ipairs(redis.call('HVALS', KEYS[3])) do
    local known, about = pcall(cjson.decode, text)
    if known and type(about) == 'table' then
      if type(about.payload) == 'string' then
        add_ids(about.payload, ids)
      else
        walk(about, ids)
      end
    end
  end
end
return { strike(ids), place, unpack(anchors) }
