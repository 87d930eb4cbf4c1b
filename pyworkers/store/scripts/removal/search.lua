-- Find the jobs of one part of a list or sorted set whose bytes contain one of some texts.
--
-- KEYS 1 list or sorted set
-- ARGV 1 first index  2 last index  then the texts
-- Returns {number of jobs read, the jobs found}.

local kind = redis.call('TYPE', KEYS[1]).ok
local jobs = {}
if kind == 'list' then
  jobs = redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2])
elseif kind == 'zset' then
  jobs = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2])
end
local found = {}
for _, raw in ipairs(jobs) do
  for i = 3, #ARGV do
    if string.find(raw, ARGV[i], 1, true) then
      found[#found + 1] = raw
      break
    end
  end
end
return { #jobs, found }
