-- Delete members of a sorted set, and apply the effects of those that this call has removed.
--
-- KEYS 1 sorted set  2 deletions (hash)  3 kept jobs of this deletion (hash)  then the keys of each effect
-- ARGV 1 place of the last member  2 id of the deletion, '' to keep nothing  3 word of the place  then the members
--      then for each effect: place of its member, counted from 1, name and arguments (protocol/effects)
-- Returns the number removed.

local gone, removed = {}, 0
local last = tonumber(ARGV[1])
local kept = ARGV[2] ~= '' and keeping(KEYS[2], KEYS[3], ARGV[2])
for i = 4, last do
  local score = kept and redis.call('ZSCORE', KEYS[1], ARGV[i])
  if redis.call('ZREM', KEYS[1], ARGV[i]) == 1 then
    gone[i - 3] = true
    removed = removed + 1
    if kept then
      kept.add(ARGV[3], score, ARGV[i])
    end
  end
end
if kept then
  kept.note()
end
apply_effects(4, last + 1, function(place)
  return gone[place]
end)
return removed
