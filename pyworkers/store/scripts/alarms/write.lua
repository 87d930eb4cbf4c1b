-- Run a command that writes, also while maxmemory is reached: an alarm is to tell people of it.
--
-- KEYS 1 a sorted set  2 the key to write
-- ARGV 1 name of the command  then its arguments behind the key
-- Returns its reply.

allow_writes(KEYS[1])
return redis.call(ARGV[1], KEYS[2], unpack(ARGV, 2))
