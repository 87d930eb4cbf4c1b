-- Enqueue the jobs of one slot of a cron entry; of several masters, only the first one succeeds. The slot's
-- key is set after the push: if the push fails (the queue's key has another type), the slot must stay due.
-- A slot whose job is a duplicate, or whose queue is full, is dealt with like one that was enqueued.
--
-- KEYS 1 slot  2 last slots of all entries  3 run-time entries  4 paused entries  5 … as in push.lua
-- ARGV 1 life of the slot's key in s  2 name of the entry  3 slot
--      4 definition of a run-time entry, which does not fire if it was changed meanwhile; else ''
--      5 … as in push.lua
-- Returns what push.lua returns; { 'passed' } if the slot is dealt with, or the entry is paused or changed.

if redis.call('GET', KEYS[1]) == '1' or redis.call('SISMEMBER', KEYS[4], ARGV[2]) == 1 then
  return { 'passed' }
end
if ARGV[4] ~= '' and redis.call('HGET', KEYS[3], ARGV[2]) ~= ARGV[4] then
  return { 'passed' }
end
local reply = push_jobs(5, 5)
if reply[1] then
  redis.call('SET', KEYS[1], '1', 'EX', ARGV[1])
  begin_at(KEYS[2], ARGV[2], ARGV[3])
end
return reply
