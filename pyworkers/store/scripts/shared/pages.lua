
-- Shared by the scripts that read many jobs: the loader puts it in front of them.

-- The bytes that one step reads, and at most some jobs more: a thousand jobs of a megabyte would block Redis for seconds,
-- and double its memory.
local PAGE_BYTES = 4194304
-- The jobs that one command reads: few until their size is known.
local FIRST, MOST_AT_ONCE = 5, 250

-- How many jobs to read next, of about the size of these; at most twice as many: others may be larger.
local function next_number(wanted, jobs, bytes)
  local largest = 1
  for _, raw in ipairs(jobs) do
    largest = math.max(largest, #raw)
  end
  return math.max(1, math.min(2 * wanted, MOST_AT_ONCE, math.floor(bytes / largest)))
end

-- The jobs from one place to another, and their scores. Places count from the lowest score, or from the job of
-- a queue that is popped next; `down`: from the other end.
local function jobs_between(key, kind, down, first, last)
  local jobs, scores = {}, {}
  if kind == 'list' and down then
    jobs = redis.call('LRANGE', key, first, last)
  elseif kind == 'list' then
    local found = redis.call('LRANGE', key, -last - 1, -first - 1)
    for i = #found, 1, -1 do
      jobs[#jobs + 1] = found[i]
    end
  else
    local flat = down and redis.call('ZRANGE', key, first, last, 'REV', 'WITHSCORES')
      or redis.call('ZRANGE', key, first, last, 'WITHSCORES')
    for i = 1, #flat, 2 do
      jobs[#jobs + 1], scores[#scores + 1] = flat[i], flat[i + 1]
    end
  end
  return jobs, scores
end

-- Call `visit(place, job, score)` for each job from one place to another, until it returns true or `most_bytes`
-- are read. Returns the place after the last one visited, and true if no job comes after it.
local function walk(key, kind, down, first, last, most_bytes, visit)
  local wanted, left = FIRST, most_bytes
  while first <= last do
    wanted = math.min(wanted, last - first + 1)
    local jobs, scores = jobs_between(key, kind, down, first, first + wanted - 1)
    for i, raw in ipairs(jobs) do
      left = left - #raw
      if visit(first + i - 1, raw, scores[i]) or left <= 0 then
        return first + i, false
      end
    end
    first = first + #jobs
    if #jobs < wanted then
      return first, true
    end
    wanted = next_number(wanted, jobs, left)
  end
  return first, false
end

-- As `walk`, from a place back to an earlier one, the nearest job first. Returns the earliest place visited.
local function walk_back(key, kind, down, last, first, most_bytes, visit)
  local total = redis.call(kind == 'list' and 'LLEN' or 'ZCARD', key)
  last, first = math.min(last, total - 1), math.max(first, 0)
  local stop = walk(key, kind, not down, total - 1 - last, total - 1 - first, most_bytes, function(at, raw, score)
    return visit(total - 1 - at, raw, score)
  end)
  return total - stop
end

-- The jobs of a list or sorted set from a place on, at most `most`, and fewer if they have `most_bytes`; then true if
-- there are no others, and their scores.
local function page_of(key, down, first, most, most_bytes)
  local kind = redis.call('TYPE', key).ok
  local raws, scores = {}, {}
  if kind ~= 'list' and kind ~= 'zset' then
    return raws, true, scores
  end
  local _, ended = walk(key, kind, down, first, first + most - 1, most_bytes or PAGE_BYTES, function(_, raw, score)
    raws[#raws + 1], scores[#scores + 1] = raw, score
  end)
  return raws, ended, scores
end
