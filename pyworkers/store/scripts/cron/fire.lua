-- Enqueue the job of one slot of a cron entry; of several masters, only the first one succeeds. The slot's
-- key is set after the push: if the push fails (the queue's key has another type), the slot must stay due.
--
-- KEYS 1 slot  2 queues  3 queue  4 last slots of all entries  5 run-time entries  6 paused entries
-- ARGV 1 life of the slot's key in s  2 name of the queue  3 payload  4 name of the entry  5 slot
--      6 definition of a run-time entry, which does not fire if it was changed meanwhile; else ''
-- Returns 1 if this call enqueued the job, else 0.

if redis.call('EXISTS', KEYS[1]) == 1 or redis.call('SISMEMBER', KEYS[6], ARGV[4]) == 1 then
  return 0
end
if ARGV[6] ~= '' and redis.call('HGET', KEYS[5], ARGV[4]) ~= ARGV[6] then
  return 0
end
redis.call('LPUSH', KEYS[3], ARGV[3])
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], '1', 'EX', ARGV[1])
begin_at(KEYS[4], ARGV[4], ARGV[5])
return 1
