-- Park jobs of a queue that moves to another Redis, in one list, as PLACE SCORE JOB. While jobs are parked, no
-- others are: the receipt of the other Redis is the number of the last portion.
--
-- KEYS 1 parked jobs  2 moves  3 the queue, or the sorted set in which its jobs wait
-- ARGV 1 name of the queue  2 id of the move  3 place: 'queue', 'schedule' or 'retry'
--      4 how far from the end of the queue that is popped next to look for a job  5... the jobs
-- Returns { number of the portion, 1 if these jobs were parked or 0 if others are, the parked jobs }
--      or { -1 }: this move has ended

local id, portion, rest = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)(.*)$')
if id ~= ARGV[2] then
  return { -1 }
end
portion = tonumber(portion)
if not holds(KEYS[1], 'list') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is no list')
end
local reply = { portion, 0 }
if redis.call('EXISTS', KEYS[1]) == 0 then
  reply[2] = 1
  for place = 5, #ARGV do
    local job, score = ARGV[place], nil
    if ARGV[3] == 'queue' then
      score = redis.call('LPOS', KEYS[3], job, 'RANK', -1, 'MAXLEN', ARGV[4]) and '0'
    else
      score = redis.call('ZSCORE', KEYS[3], job)
    end
    if score then
      if reply[1] == portion then
        reply[1] = portion + 1
        redis.call('HSET', KEYS[2], ARGV[1], id .. ' ' .. reply[1] .. rest)
      end
      redis.call('RPUSH', KEYS[1], ARGV[3] .. ' ' .. score .. ' ' .. job)
      if ARGV[3] == 'queue' then
        redis.call('LREM', KEYS[3], -1, job)
      else
        redis.call('ZREM', KEYS[3], job)
      end
    end
  end
end
for _, job in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  reply[#reply + 1] = job
end
return reply
