-- Release a lock that this job still holds.
--
-- KEYS 1 lock  2 score of the scheduled job that holds it
-- ARGV 1 jid of the holder
-- Returns 1 if the job held the lock, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
