-- Note that a job shall not run, wherever it is. Servers look at the notes once a second.
--
-- KEYS 1 notes
-- ARGV 1 jid  2 life of a note in s
-- Returns nothing.

local now = redis.call('TIME')
redis.call('ZADD', KEYS[1], now[1] .. '.' .. string.format('%06d', now[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now[1] - ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[2])
