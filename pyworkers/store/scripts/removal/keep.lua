-- Keep jobs of a key that was cleared, for an undo, from the one that is next on: see shared/undo.lua.
--
-- KEYS 1 the cleared list or sorted set  2 deletions (hash)  3 kept jobs of this deletion (hash)
-- ARGV 1 id of the deletion  2 word of the place  3 first index  4 most jobs to read, and fewer if they are large
--      last: the prefix of all keys, or ''
-- Returns the number of jobs read.

local kept = keeping(KEYS[2], KEYS[3], ARGV[1])
local first = tonumber(ARGV[3])
local jobs = page_of(KEYS[1], first, tonumber(ARGV[4]), 4194304, true)
local is_list = redis.call('TYPE', KEYS[1]).ok == 'list'
local scored = is_list and {} or redis.call('ZRANGE', KEYS[1], first, first + #jobs - 1, 'WITHSCORES')
for n, raw in ipairs(jobs) do
  kept.add(ARGV[2], scored[2 * n] or '', raw)
end
kept.note()
return #jobs
