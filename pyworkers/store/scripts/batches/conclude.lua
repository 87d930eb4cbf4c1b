-- Fire the callbacks of a batch that are due.
--
-- KEYS 1 queues
-- ARGV 1 id
-- Returns 1, or 0 for an unknown batch.

local batch = batches()
if redis.call('HEXISTS', batch.key(ARGV[1]), 'open') == 0 then
  return 0
end
batch.conclude(ARGV[1])
return 1
