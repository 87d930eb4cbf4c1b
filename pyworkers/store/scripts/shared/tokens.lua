-- Shared by the scripts that list jobs for people: the loader puts it in front of them.

-- As in extract.py.
local LARGE, EDGE, SAMPLES, SAMPLE, TOKEN = 16384, 1024, 32, 16, 20
-- The jobs of one command are copied into Lua's memory.
local MOST_BYTES, MOST_AT_ONCE = 1048576, 2000

-- The text that represents a job (extract.py).
local function token_of(raw)
  if #raw > LARGE then
    local parts = { #raw, raw:sub(1, EDGE), raw:sub(-EDGE) }
    local room = #raw - 2 * EDGE - SAMPLE
    for i = 0, SAMPLES - 1 do
      local first = EDGE + math.floor(i * room / (SAMPLES - 1))
      parts[#parts + 1] = raw:sub(first + 1, first + SAMPLE)
    end
    raw = table.concat(parts)
  end
  return redis.sha1hex(raw):sub(1, TOKEN)
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
    local flat = redis.call(down and 'ZREVRANGE' or 'ZRANGE', key, first, last, 'WITHSCORES')
    for i = 1, #flat, 2 do
      jobs[#jobs + 1], scores[#scores + 1] = flat[i], flat[i + 1]
    end
  end
  return jobs, scores
end

-- Call `visit(place, job, score)` for each job from one place to another, until it returns true or `most_bytes`
-- are read. Returns the place after the last one visited.
local function walk(key, kind, down, first, last, most_bytes, visit)
  local at_once, read = 10, 0
  while first <= last do
    local jobs, scores = jobs_between(key, kind, down, first, math.min(last, first + at_once - 1))
    if #jobs == 0 then
      return first
    end
    local bytes = 0
    for i, raw in ipairs(jobs) do
      bytes = bytes + #raw
      if visit(first + i - 1, raw, scores[i]) then
        return first + i
      end
    end
    first, read = first + #jobs, read + bytes
    if read >= most_bytes then
      return first
    end
    at_once = math.max(1, math.min(MOST_AT_ONCE, math.floor(MOST_BYTES * #jobs / (bytes + 1))))
  end
  return first
end
