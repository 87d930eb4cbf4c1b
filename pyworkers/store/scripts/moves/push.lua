-- Push a portion of the jobs that move here from another Redis, and write what that Redis knows of them. The
-- receipt has the number of the last portion: one that is sent again, by whichever process, changes nothing.
--
-- KEYS 1 receipt  2 queues  3 queue  4 schedule  5 retry  6... the hash of each record
-- ARGV 1 number of the portion  2 name of the queue  3 number of jobs
--      then for each job: place ('queue', 'schedule' or 'retry'), score, job
--      then for each record: its life in ms or 0 for no end, the number of the arguments that follow, then
--      names and values in turn
-- Returns the number of jobs pushed, 0 if they were pushed before; -1 without a receipt, -2 if a key is of
-- another type: then nothing was done

local last = tonumber(redis.call('GET', KEYS[1]) or '')
if not last then
  return -1
end
if last >= tonumber(ARGV[1]) then
  return 0
end
if not (holds(KEYS[2], 'set') and holds(KEYS[3], 'list') and holds(KEYS[4], 'zset') and holds(KEYS[5], 'zset')) then
  return -2
end
local sets = { schedule = KEYS[4], retry = KEYS[5] }
local number = tonumber(ARGV[3])
local a = 4 + 3 * number
-- First, as they may be written again: what a user may not do must not be refused behind the jobs.
local k = 5
while a <= #ARGV do
  k = k + 1
  local life, length = ARGV[a], tonumber(ARGV[a + 1])
  -- The record of another job with this id is not overwritten.
  if redis.call('EXISTS', KEYS[k]) == 0 then
    for field = a + 2, a + 1 + length, 2 do
      redis.call('HSET', KEYS[k], ARGV[field], ARGV[field + 1])
    end
    if life ~= '0' then
      redis.call('PEXPIRE', KEYS[k], life)
    end
  end
  a = a + 2 + length
end
a = 4
for _ = 1, number do
  local place, score, job = ARGV[a], ARGV[a + 1], ARGV[a + 2]
  if place == 'queue' then
    redis.call('SADD', KEYS[2], ARGV[2])
    redis.call('LPUSH', KEYS[3], job)
  else
    keep(sets[place], score, job)
  end
  a = a + 3
end
redis.call('SET', KEYS[1], ARGV[1])
return number
