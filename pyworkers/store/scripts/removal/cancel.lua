-- Cancel waiting jobs, one page of a queue or a sorted set in each call: members of cancelled batches, or jobs that have a
-- tag or a class. The removal is the receipt. Call it again, with the place in the reply, until that is -1.
--
-- KEYS 1 list or sorted set  2 notes  3 counter  4 counter of the day
-- ARGV 1 place: 0 in the first call  2 'batch', 'tag' or 'class'  3 the tag or the class  4 life of the day's counter in s
-- Returns { next place or -1, number of jobs that were removed }.

-- Some milliseconds of Redis' time: what one call reads, decodes and removes. It reads many jobs, because a removal from
-- the middle of a queue takes Redis through half of it, be it of one job or of many.
local MOST, MOST_DECODED, MOST_REMOVED = 10000, 1000, 200
local kind, wanted = ARGV[2], ARGV[3]
local made
local function batch()
  made = made or batches()
  return made
end

-- True for a batch that is cancelled; each is looked up once.
local known = {}
local function is_cancelled(id)
  if known[id] == nil then
    known[id] = redis.pcall('HEXISTS', batch().key(id), 'cancel_at') == 1
  end
  return known[id]
end

local fits = {
  batch = function(job)
    return type(job.batch) == 'string' and is_cancelled(job.batch)
  end,
  tag = function(job)
    for _, tag in ipairs(type(job.tags) == 'table' and job.tags or {}) do
      if tag == wanted then
        return true
      end
    end
    return false
  end,
  class = function(job)
    return job.class == wanted or job.wrapped == wanted
  end,
}

-- Few texts hold what is looked for, and only these are decoded.
local needle, decoded = kind == 'batch' and '"batch"' or wanted, 0
local function job_in(raw)
  -- A text with escapes may have the name in another form.
  if not (string.find(raw, needle, 1, true) or string.find(raw, '\\', 1, true)) then
    return nil
  end
  decoded = decoded + 1
  local read, job = pcall(cjson.decode, raw)
  return read and type(job) == 'table' and type(job.jid) == 'string' and fits[kind](job) and job or nil
end

local type_of, first = redis.call('TYPE', KEYS[1]).ok, tonumber(ARGV[1])
-- From the end where jobs arrive. Jobs that leave between two calls leave at the other end, and shift none.
local raws, ended = page_of(KEYS[1], true, first, MOST)
local read, taken = 0, {}
for _, raw in ipairs(raws) do
  if #taken == MOST_REMOVED or decoded == MOST_DECODED then
    break
  end
  local job = job_in(raw)
  if job then
    taken[#taken + 1] = job
    if type_of == 'list' then
      allow_writes(KEYS[2])
      redis.call('LSET', KEYS[1], first + read, GONE)
    else
      redis.call('ZREM', KEYS[1], raw)
    end
  end
  read = read + 1
end
if #taken > 0 then
  if type_of == 'list' then
    local from_right = redis.call('LLEN', KEYS[1]) - first < first
    redis.call('LREM', KEYS[1], from_right and -#taken or #taken, GONE)
  end
  redis.pcall('INCRBY', KEYS[3], #taken)
  redis.pcall('INCRBY', KEYS[4], #taken)
  redis.pcall('EXPIRE', KEYS[4], ARGV[4])
end
for _, job in ipairs(taken) do
  redis.pcall('ZREM', KEYS[2], job.jid)
  end_waiting(job, job.jid, 'cancelled', batch)
end
if read == #raws and ended then
  return { -1, #taken }
end
return { first + read - #taken, #taken }
