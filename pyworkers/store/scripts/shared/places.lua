
-- Shared by the scripts that take jobs out of the middle of a queue: the loader puts it in front of them.

-- How far from the index at which a job was seen it is searched.
local REACH = 300
-- The placeholder of a job that is being removed: no job has these bytes.
local GONE = '\0pyworkers: withdrawn'

-- Call `visit(index, job)` for the jobs of a list around an index, from there to both sides, until it returns true:
-- `reach` jobs on each side, and fewer if they are large.
local function around(list, index, reach, visit)
  index = math.max(0, index)
  local left, wanted, found, following = 2 * PAGE_BYTES, FIRST, false, nil
  local function look(first, last)
    local jobs = not found and first <= last and redis.call('LRANGE', list, first, last) or {}
    for i, raw in ipairs(jobs) do
      left = left - #raw
      found = found or visit(first + i - 1, raw)
    end
    following = math.min(following, next_number(wanted, jobs, left / 2))
  end

  local lowest, highest = math.max(0, index - reach), math.min(index + reach, redis.call('LLEN', list) - 1)
  local before, after = index - 1, index
  while not found and left > 0 and (before >= lowest or after <= highest) do
    following = MOST_AT_ONCE
    look(after, math.min(highest, after + wanted - 1))
    look(math.max(lowest, before - wanted + 1), before)
    before, after, wanted = before - wanted, after + wanted, following
  end
end

-- The index of a job near the one at which it was seen; nil if it is not there. A search through a million jobs
-- blocks Redis for long.
local function index_near(list, raw, expected)
  if redis.call('LINDEX', list, expected) == raw then
    return expected
  end
  local found
  around(list, expected, REACH, function(index, job)
    found = job == raw and index
    return found
  end)
  return found or nil
end

-- Remove the job at an index.
local function take_from(list, index)
  local from_right = redis.call('LLEN', list) - index < index
  redis.call('LSET', list, index, GONE)
  redis.call('LREM', list, from_right and -1 or 1, GONE)
end
