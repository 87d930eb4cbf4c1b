-- Return jobs that a dead process of another program has left to the end of their queue from which jobs are
-- popped, each as it is.
--
-- KEYS 1 list of that process  2 queue  3 queues
-- ARGV 1 name of the queue  2... the jobs, the last one to be popped first
-- Returns the number moved; -1 if the queue's key is not a list: then the jobs stay.

if not holds(KEYS[2], 'list') then
  return -1
end
local moved = 0
for place = 2, #ARGV do
  if redis.call('LREM', KEYS[1], 1, ARGV[place]) == 1 then
    redis.call('RPUSH', KEYS[2], ARGV[place])
    moved = moved + 1
  end
end
if moved > 0 then
  redis.call('SADD', KEYS[3], ARGV[1])
end
return moved
