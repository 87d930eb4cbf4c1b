-- pyworkers renew, wire 1
--
-- Renew the lease of one incarnation, and register its queues. A lease whose queues are registered is renewed
-- by PEXPIRE alone, and comes here when that finds none.
--
-- KEYS 1 lease  2 tombstone  3 owners
-- ARGV 1 identity  2 lease in ms  3 JSON list of its queues
-- Returns 1 renewed, 2 restored (it was missing, but no peer had recovered the lists), 0 lost.

-- While the lease exists, no peer recovers the jobs of its owner. PEXPIRE needs no memory, so Redis accepts it
-- when maxmemory is reached; after it, the script may also use commands that need memory: see exchange.lua.
local held = redis.call('PEXPIRE', KEYS[1], ARGV[2]) == 1
if not held and redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
if held then
  return 1
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 2
