-- Keep jobs of a key that was cleared, for an undo, from the one that is next on: see shared/undo.lua.
--
-- KEYS 1 the cleared list or sorted set  2 deletions (hash)  3 kept jobs of this deletion (hash)
-- ARGV 1 id of the deletion  2 word of the place  3 first index  4 last index
--      last: the prefix of all keys, or ''
-- Returns the number of jobs read.

local kept = keeping(KEYS[2], KEYS[3], ARGV[1])
local read = 0
if redis.call('TYPE', KEYS[1]).ok == 'list' then
  local jobs = redis.call('LRANGE', KEYS[1], -ARGV[4] - 1, -ARGV[3] - 1)
  for i = #jobs, 1, -1 do
    kept.add(ARGV[2], '', jobs[i])
  end
  read = #jobs
else
  local flat = redis.call('ZRANGE', KEYS[1], ARGV[3], ARGV[4], 'WITHSCORES')
  for i = 1, #flat, 2 do
    kept.add(ARGV[2], flat[i + 1], flat[i])
  end
  read = #flat / 2
end
kept.note()
return read
