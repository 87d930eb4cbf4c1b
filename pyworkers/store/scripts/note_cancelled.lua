-- Turn Sidekiq's cancellations of jobs that run here into notes. The iteration state with the cancellation is
-- deleted, as Sidekiq does at the end of a cancelled job, because a later job with the same id may run.
--
-- KEYS 1 notes  then for each job: the state of its iteration
-- ARGV 1 life of a note in s  then for each job: its jid
-- Returns the number of cancelled jobs.

local cancelled = 0
for n = 2, #KEYS do
  if redis.call('TYPE', KEYS[n]).ok == 'hash' and redis.call('HEXISTS', KEYS[n], 'cancelled') == 1 then
    note(KEYS[1], ARGV[n], ARGV[1])
    redis.call('UNLINK', KEYS[n])
    cancelled = cancelled + 1
  end
end
return cancelled
