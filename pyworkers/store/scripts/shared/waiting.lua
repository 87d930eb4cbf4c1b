-- Shared by the scripts that free the slots of limits: the loader puts it in front of them.

-- Pass a free slot to the job that has waited longest: it leaves `schedule` for the head of its queue, and is
-- called from now on. A job that is no longer in `schedule` is skipped. Returns true if a job was called.
--
-- A member of `waiting` is the queue and the id of a job. Its score is the score of the job in `schedule`, exact to the
-- microsecond and therefore unique; for a called job it is the time of the call.
local function call_next(waiting, schedule, queues, now)
  while true do
    local first = redis.call('ZRANGEBYSCORE', waiting, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local member, score = first[1], first[2]
    if not member then
      return false
    end
    local queue, jid = string.match(member, '^(%S+) (.*)$')
    local plain = jid and string.find(jid, '^[%w-]+$')
    for _, job in ipairs(queue and redis.call('ZRANGEBYSCORE', schedule, score, score) or {}) do
      -- Another job may be due at the same time.
      if not plain or string.find(job, jid, 1, true) then
        local list = PREFIX .. 'queue:' .. queue
        redis.call('ZADD', waiting, now, member)
        if holds(list, 'list') then
          redis.call('SADD', queues, queue)
          redis.call('RPUSH', list, job)
          redis.call('ZREM', schedule, job)
        else
          redis.call('ZADD', schedule, now, job)
        end
        return true
      end
    end
    redis.call('ZREM', waiting, member)
  end
end

