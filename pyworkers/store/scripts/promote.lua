-- Move due jobs from a sorted set into their queues; of several schedulers, the one whose ZREM takes the
-- member moves it.
--
-- KEYS 1 sorted set  2 dead  3 queues  4… queues' lists
-- ARGV 1 now  2 oldest score kept in dead  3 members kept in dead
--      then for each member: member, payload, index of its queue in KEYS (0: bury the member), queue's name
-- Returns the number moved.

local moved = 0
for i = 4, #ARGV, 4 do
  local member, payload, index, name = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  if redis.call('ZREM', KEYS[1], member) == 1 then
    moved = moved + 1
    if index == 0 then
      bury(KEYS[2], ARGV[1], ARGV[2], ARGV[3], member)
    else
      redis.call('SADD', KEYS[3], name)
      redis.call('LPUSH', KEYS[index], payload)
    end
  end
end
return moved
