-- Find the jobs in in-progress lists whose bytes contain a text. It only reads; such a list holds no more jobs
-- than its server can run.
--
-- KEYS the lists
-- ARGV 1 the text; '' for all jobs
-- Returns for each job found: the place of its list, from 1, and its bytes.

local found = {}
for place, key in ipairs(KEYS) do
  local jobs = redis.pcall('LRANGE', key, 0, -1)
  for _, raw in ipairs(jobs.err and {} or jobs) do
    if raw:find(ARGV[1], 1, true) then
      found[#found + 1] = place
      found[#found + 1] = raw
    end
  end
end
return found
