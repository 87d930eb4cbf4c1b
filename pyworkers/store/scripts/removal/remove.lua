-- Delete members of a sorted set, and apply the effects of those that this call has removed.
--
-- KEYS 1 sorted set  then the keys of each effect
-- ARGV 1 place of the last member  then the members
--      then for each effect: place of its member, counted from 1, name and arguments (protocol/effects)
-- Returns the number removed.

local gone, removed = {}, 0
local last = tonumber(ARGV[1])
for i = 2, last do
  if redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
    gone[i - 1] = true
    removed = removed + 1
  end
end
apply_effects(2, last + 1, function(place)
  return gone[place]
end)
return removed
