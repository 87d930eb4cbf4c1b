-- Run commands that write, also while maxmemory is reached: alarms, and the changes of people that free memory.
--
-- KEYS 1 a sorted set  2… the key of each command
-- ARGV for each command: the number of its arguments behind the key, its name, these arguments
-- Returns their replies.

allow_writes(KEYS[1])
local replies, at = {}, 1
while ARGV[at] do
  local last, n = at + 1 + tonumber(ARGV[at]), #replies + 1
  replies[n] = redis.call(ARGV[at + 1], KEYS[n + 1], unpack(ARGV, at + 2, last))
  at = last + 1
end
return replies
