-- Remove a portion of parked jobs that has arrived in the other Redis, with what is known of them here.
--
-- KEYS 1 parked jobs  2 moves  3... the hash of each record
-- ARGV 1 name of the queue  2 id of the move  3 number of the portion
-- Returns 1; 0 if another process has removed it

local id, portion = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)')
if id ~= ARGV[2] or portion ~= ARGV[3] then
  return 0
end
redis.call('UNLINK', KEYS[1], unpack(KEYS, 3))
return 1
