-- Push jobs that have conditions (conditions.py), all or none.
--
-- KEYS 1 queues  2 schedule  then the queues of the jobs
--      then for each job with a lock: the lock, and the score of the scheduled job that holds it
--      then the keys of each effect
-- ARGV 1 number of jobs  2 number of queues, then their names
--      then for each job: place of its queue, jid, payload, time at which it is due or '' for now,
--      most jobs in its queue or 0, life of its lock in ms or 0 for no lock, mode of its lock
--      then for each effect: place of its job, name and arguments (protocol/effects)
-- Returns { 'pushed', for each job: 0, or the jid of the job that holds its lock; then the replaced jobs }
--      or, before any job was pushed: { 'full', place of the job }, { 'duplicate', place of the job, jid },
--      { 'failed', the error of an effect }

return push_jobs(1, 1)
