-- pyworkers cancel, wire 1
--
-- Cancel a job by its id, which is not one of a batch: note that it must not run, and look for it where jobs wait, at
-- some 1000 jobs in each call. Call it again, with the place in the reply, while that is 'searching'.
--
-- KEYS 1 pyworkers:cancelled  2 schedule  3 retry  4 queues
-- ARGV 1 jid  2 place: '' in the first call, then the place in the last reply  3 the day in UTC, as 2026-11-28, for a counter
--      last: the prefix of all keys, or ''
-- Returns { 'searching', place }
--      or { 'removed' }: it was waiting, and has ended as cancelled: for its lock, its batch and its result, too
--      or { 'noted' }: it is not waiting. A running one is asked to end within a second, and one that is unknown is not
--      started for a day.

local LIFE_S, DAYS_LIFE_S = 86400, 157680000
-- What one call reads: some milliseconds of Redis' time.
local MOST, MOST_OF_KEY, MOST_BYTES = 1000, 100, PAGE_BYTES
local jid, own = ARGV[1], PREFIX .. 'pyworkers:'
local made
local function batch()
  made = made or batches()
  return made
end

-- The job in a text; nil if it is another one. Few texts hold the id, and only these are decoded.
local function job_in(raw)
  if string.find(raw, jid, 1, true) then
    local read, job = pcall(cjson.decode, raw)
    return read and type(job) == 'table' and job.jid == jid and job or nil
  end
end

if ARGV[2] == '' then
  note(KEYS[1], jid, LIFE_S)
end

-- A place is the number of a key and an index in it: the sets, then the queues in the order of their names. An index
-- counts from the end where jobs arrive. Jobs that leave between two calls leave at the other end, and shift none.
local queues = redis.call('SMEMBERS', KEYS[4])
table.sort(queues)
local places = { KEYS[2], KEYS[3] }
for _, queue in ipairs(queues) do
  places[#places + 1] = PREFIX .. 'queue:' .. queue
end
local number, index = string.match(ARGV[2], '^(%d+) (%d+)$')
number, index = tonumber(number or 1), tonumber(index or 0)
local read, bytes = 0, 0
while places[number] and read < MOST and bytes < MOST_BYTES do
  local key = places[number]
  local kind = redis.call('TYPE', key).ok
  local jobs, ended = page_of(key, true, index, MOST_OF_KEY, MOST_BYTES - bytes)
  for _, raw in ipairs(jobs) do
    bytes = bytes + #raw
    local job = job_in(raw)
    if job then
      if kind == 'list' then
        redis.call('LREM', key, 1, raw)
      else
        redis.call('ZREM', key, raw)
      end
      redis.pcall('ZREM', KEYS[1], jid)
      local day = own .. 'stat:cancelled:' .. ARGV[3]
      redis.pcall('INCR', own .. 'stat:cancelled')
      redis.pcall('INCR', day)
      redis.pcall('EXPIRE', day, DAYS_LIFE_S)
      end_waiting(job, jid, 'cancelled', batch)
      return { 'removed' }
    end
  end
  -- An empty place costs as much as some jobs do.
  read, index = read + #jobs + 10, index + #jobs
  if ended then
    number, index = number + 1, 0
  end
end
if places[number] then
  return { 'searching', number .. ' ' .. index }
end
return { 'noted' }
