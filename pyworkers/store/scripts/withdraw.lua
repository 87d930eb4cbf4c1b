-- Take waiting jobs out of their queue, for good or to dead. The removal is the receipt: a job that a server
-- or somebody else has taken meanwhile is left to them.
--
-- KEYS 1 queue  2 dead
-- ARGV 1 now  2 oldest score kept in dead  3 members kept in dead  4 '1' to bury the jobs  then the jobs
-- Returns the number taken, or -1 if dead is no sorted set: then nothing was done.

local to_bury = ARGV[4] == '1'
if to_bury then
  local kind = redis.call('TYPE', KEYS[2]).ok
  if kind ~= 'zset' and kind ~= 'none' then
    return -1
  end
end
local taken = 0
for i = 5, #ARGV do
  if redis.call('LREM', KEYS[1], 1, ARGV[i]) == 1 then
    taken = taken + 1
    if to_bury then
      bury(KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[i])
    end
  end
end
return taken
