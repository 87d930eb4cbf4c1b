
-- Shared by the scripts that take jobs out of the middle of a queue: the loader puts it in front of them.

-- How far from the index at which a job was seen it is searched.
local REACH = 300
-- The placeholder of a job that is being removed: no job has these bytes.
local GONE = '\0pyworkers: withdrawn'

-- The index of a job near the one at which it was seen; nil if it is not there. A search through a million jobs
-- blocks Redis for long.
local function index_near(list, raw, expected)
  if redis.call('LINDEX', list, expected) == raw then
    return expected
  end
  local first = math.max(0, expected - REACH)
  for offset, found in ipairs(redis.call('LRANGE', list, first, expected + REACH)) do
    if found == raw then
      return first + offset - 1
    end
  end
end

-- Remove the job at an index.
local function take_from(list, index)
  local from_right = redis.call('LLEN', list) - index < index
  redis.call('LSET', list, index, GONE)
  redis.call('LREM', list, from_right and -1 or 1, GONE)
end
