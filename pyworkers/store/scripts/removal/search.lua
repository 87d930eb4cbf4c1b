-- Find the jobs of one part of a list or sorted set whose bytes contain one of some texts.
--
-- KEYS 1 list or sorted set
-- ARGV 1 first index  2 most jobs to read, and fewer if they are large  then the texts
-- Returns {number of jobs read, the jobs found}.

local jobs = page_of(KEYS[1], false, tonumber(ARGV[1]), tonumber(ARGV[2]))
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
