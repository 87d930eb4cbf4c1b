-- Keep jobs of a key that was cleared, for an undo, from the one that is next on: see shared/undo.lua.
--
-- KEYS 1 the cleared list or sorted set  2 deletions (hash)  3 kept jobs of this deletion (hash)
-- ARGV 1 id of the deletion  2 word of the place  3 first index  4 most jobs to read, and fewer if they are large; 0: none
--      last: the prefix of all keys, or ''
-- Returns the number of jobs read; 0 if there is no room, or none is to be read: then no job is kept from here on.

local kept, first = keeping(KEYS[2], KEYS[3], ARGV[1]), tonumber(ARGV[3])
if kept.is_over or ARGV[4] == '0' then
  allow_writes(KEYS[1])
  local size = redis.call(redis.call('TYPE', KEYS[1]).ok == 'list' and 'LLEN' or 'ZCARD', KEYS[1])
  kept.lose(math.max(0, size - first))
  kept.note()
  return 0
end
local jobs, _, scores = page_of(KEYS[1], false, first, tonumber(ARGV[4]))
for n, raw in ipairs(jobs) do
  kept.add(ARGV[2], scores[n] or '', raw)
end
kept.note()
return #jobs
