-- Strike off the jobs that wait in batches: what follows a group, and callbacks.
--
-- KEYS 1 turn  2 missing
-- ARGV 1 token  2 life of the turn in ms  then the ids of the batches
-- Returns the number of jobs that are still missing, or nothing without the turn.

if not sweeping() then
  return nil
end
local batch = batches()
local ids = {}
for n = 3, #ARGV do
  local key = batch.key(ARGV[n])
  -- A key of the wrong type disturbs no other batch: an error has no items.
  for _, item in ipairs(redis.pcall('LRANGE', key .. ':then', 0, -1)) do
    add_ids(item, ids)
  end
  for _, item in ipairs(redis.pcall('HMGET', key, 'on_complete', 'on_success', 'on_death', 'on_cancel')) do
    add_ids(item or '', ids)
  end
end
return strike(ids)
