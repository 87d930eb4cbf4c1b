-- Give the jobs of an incarnation without a lease back to their queues, a bounded number in each call. If
-- several peers call it, each job is moved once. The tombstone shows the owner the loss, if it still runs.
--
-- The identity is removed from ``processes`` here, before its hash expires: the heartbeat of go-workers2 ends
-- for good when it finds a member without a hash. It reads the set first and the hashes after it, so the hash
-- itself stays until it expires.
--
-- KEYS 1 lease  2 tombstone  3 owners  4 queues  5 processes  6 work  7 workers  8 signals
--      then for each queue: in-progress list, queue
-- ARGV 1 identity  2 life of the tombstone in s  3 most to move  then for each queue: its name
-- Returns -1 while the lease exists, else the number moved; if that is below ARGV 3, the owner is removed
-- from owners. If a queue's key is not a list, its jobs stay in the in-progress list, and their owner stays.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return -1
end
redis.call('SET', KEYS[2], '1', 'EX', ARGV[2])
if holds(KEYS[5], 'set') then
  redis.call('SREM', KEYS[5], ARGV[1])
end
redis.call('UNLINK', KEYS[6], KEYS[7], KEYS[8])
local most = tonumber(ARGV[3])
local moved = 0
local stuck = false
for q = 4, #ARGV do
  local from, to = KEYS[2 * q + 1], KEYS[2 * q + 2]
  local any = false
  local fits = holds(to, 'list')
  stuck = stuck or not fits and redis.call('EXISTS', from) == 1
  while fits and moved < most do
    local raw = redis.call('LPOP', from)
    if not raw then
      break
    end
    redis.call('RPUSH', to, raw)
    moved = moved + 1
    any = true
  end
  if any then
    redis.call('SADD', KEYS[4], ARGV[q])
  end
end
if moved < most and not stuck then
  redis.call('HDEL', KEYS[3], ARGV[1])
end
return moved
