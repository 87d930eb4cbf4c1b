-- Shared by the scripts that note the runs of cron entries: the loader puts it in front of them.

-- The runs that are kept of a cron entry.
local MOST_RUNS = 50

-- Delete the runs of a cron entry with the earliest slots; a slot is in front of the name of its run.
local function forget_runs(key)
  local names = redis.call('HKEYS', key)
  table.sort(names, function(one, other)
    return (tonumber(string.match(one, '^%d+')) or 0) < (tonumber(string.match(other, '^%d+')) or 0)
  end)
  for n = 1, #names - MOST_RUNS do
    redis.call('HDEL', key, names[n])
  end
end

-- Add facts, a JSON object, to a run. A key of another type is not changed.
local function note_run(key, run, facts, life)
  if not holds(key, 'hash') then
    return
  end
  -- Another program may have written anything.
  local read, known = pcall(cjson.decode, redis.call('HGET', key, run) or '{}')
  known = read and type(known) == 'table' and known or {}
  for name, value in pairs(cjson.decode(facts)) do
    known[name] = value
  end
  redis.call('HSET', key, run, cjson.encode(known))
  redis.call('EXPIRE', key, life)
  if redis.call('HLEN', key) > MOST_RUNS then
    forget_runs(key)
  end
end
