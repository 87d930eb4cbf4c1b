-- Remove a portion of parked jobs that has arrived in the other Redis, with what is known of them here. Other bytes in
-- their list go to the queue.
--
-- KEYS 1 parked jobs  2 moves  3 queues  4 queue  5... the hash of each record
-- ARGV 1 name of the queue  2 id of the move  3 number of the portion  4... the entries that have arrived
-- Returns 1; 0 if another process has removed it; an error if
-- other bytes are there, and a key of the queue is of another type: then nothing was done

local id, portion = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or '', '^(%S+) (%d+)')
if id ~= ARGV[2] or portion ~= ARGV[3] then
  return 0
end
local others = redis.call('LLEN', KEYS[1]) > #ARGV - 3
if others and not (holds(KEYS[3], 'set') and holds(KEYS[4], 'list')) then
  return redis.error_reply('WRONGTYPE a key of the queue has another type')
end
for place = 4, #ARGV do
  redis.call('LREM', KEYS[1], 1, ARGV[place])
end
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  redis.call('SADD', KEYS[3], ARGV[1])
  redis.call('RPUSH', KEYS[4], entry)
end
redis.call('UNLINK', KEYS[1], unpack(KEYS, 5))
return 1
