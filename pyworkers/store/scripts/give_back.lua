-- Return jobs from an in-progress list to the end of their queue from which jobs are popped, the oldest to be
-- popped first. Fewer in a call if they are large: a thousand of a megabyte would block Redis for a second.
--
-- KEYS 1 in-progress list  2 queue  3 queues
-- ARGV 1 name of the queue  2 most to move
-- Returns the number moved; 0 if none are left, or if the queue's key is not a list: then the jobs stay, and a peer
-- recovers them.

if not holds(KEYS[2], 'list') then
  return 0
end
local moved, left = 0, 4194304
while moved < tonumber(ARGV[2]) and left > 0 do
  local raw = redis.call('LPOP', KEYS[1])
  if not raw then
    break
  end
  redis.call('RPUSH', KEYS[2], raw)
  moved, left = moved + 1, left - #raw
end
if moved > 0 then
  redis.call('SADD', KEYS[3], ARGV[1])
end
return moved
