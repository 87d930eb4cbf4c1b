-- Turn Sidekiq's cancellations of jobs that run here into notes. The state that says so goes, as in Sidekiq at
-- the end of such a job: another job of that id may run.
--
-- KEYS 1 notes  then for each job: the state of its iteration
-- ARGV 1 life of a note in s  then for each job: its jid
-- Returns how many were cancelled.

local cancelled = 0
for n = 2, #KEYS do
  if redis.call('TYPE', KEYS[n]).ok == 'hash' and redis.call('HEXISTS', KEYS[n], 'cancelled') == 1 then
    note(KEYS[1], ARGV[n], ARGV[1])
    redis.call('UNLINK', KEYS[n])
    cancelled = cancelled + 1
  end
end
return cancelled
