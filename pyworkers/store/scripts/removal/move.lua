-- Move members of a sorted set into their queues or to dead, on request. Of several requests at once, also
-- from Sidekiq's pages, the one whose ZREM removes the member moves it.
--
-- KEYS 1 sorted set  2 dead  3 queues  4… queues' lists
--      then the keys of each effect
-- ARGV 1 now  2 oldest score kept in dead  3 members kept in dead
--      4 place of the last key of the queues  5 place of the last argument of the members
--      then for each member: member, payload, index of its queue in KEYS (0: bury the member), queue's name
--      then for each effect: place of its member, counted from 1, name and arguments (protocol/effects)
-- Returns {places of the members moved, from 1,  keys of the wrong type, whose members were not moved}.

local moved, broken, gone = {}, {}, {}
local last = tonumber(ARGV[5])
for i = 6, last, 4 do
  local member, payload, index, name = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local key = KEYS[index == 0 and 2 or index]
  if not holds(key, index == 0 and 'zset' or 'list') then
    broken[#broken + 1] = key
  elseif redis.call('ZREM', KEYS[1], member) == 1 then
    moved[#moved + 1] = (i - 2) / 4
    gone[(i - 2) / 4] = true
    if index == 0 then
      bury(key, ARGV[1], ARGV[2], ARGV[3], member)
    else
      redis.call('LPUSH', key, payload)
      redis.pcall('SADD', KEYS[3], name)
    end
  end
end
apply_effects(ARGV[4] + 1, last + 1, function(place)
  return gone[place]
end)
return { moved, broken }
