-- Delete a batch and those inside it: a deleted member of the one around it. Its jobs run nevertheless.
--
-- KEYS 1 queues
-- ARGV 1 id
-- Returns 1, or 0 for an unknown batch.

local batch = batches()
local key = batch.key(ARGV[1])
if redis.call('HEXISTS', key, 'open') == 0 then
  return 0
end
local parent = redis.call('HGET', key, 'parent')
batch.delete(ARGV[1])
if parent then
  batch.count(string.sub(parent, string.find(parent, ' ', 1, true) + 1), { ARGV[1] }, 'deleted', '', '')
end
return 1
