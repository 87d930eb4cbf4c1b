-- Free the slots of dead servers, and call jobs that wait for slots that are free; or, to reset them, free all
-- slots and forget all starts of these limits. A server is dead if its lease has expired and its jobs are
-- recovered: it has a tombstone, or is not in owners. Starts and turns of a rate expire by themselves.
--
-- KEYS 1 limits  2 schedule  3 queues  4 owners
--      then for each limit: both keys (ask.lua)
-- ARGV 1 '1' to reset  2 what the key of a lease begins with  3 and the key of a tombstone
--      then for each limit: its name
-- Returns { number of the slots freed, number of the jobs called }.

-- A called job that has not arrived after this time was deleted.
local LOST_S = 60

local reset = ARGV[1] == '1'
local now = clock()
local deaths = {}
local function dead(identity)
  if deaths[identity] == nil then
    deaths[identity] = redis.call('EXISTS', ARGV[2] .. identity) == 0
      and (redis.call('EXISTS', ARGV[3] .. identity) == 1 or redis.call('HEXISTS', KEYS[4], identity) == 0)
  end
  return deaths[identity]
end

local freed, called = 0, 0
for n = 4, #ARGV do
  local name, holders, waiting = ARGV[n], KEYS[2 * n - 3], KEYS[2 * n - 2]
  local most, window = string.match(redis.call('HGET', KEYS[1], name) or '', '^(%d+) (%S+)$')
  window = tonumber(window or '')
  if window and holds(holders, 'zset') and holds(waiting, 'zset') then
    if reset then
      freed = freed + redis.call('ZCARD', holders)
      redis.call('DEL', holders)
    end
    if window > 0 then
      redis.call('ZREMRANGEBYSCORE', holders, '-inf', now - window)
      if reset then
        -- The jobs in schedule keep the times that they have there.
        redis.call('DEL', waiting)
      end
    else
      for _, holder in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
        if dead(string.match(holder, '^[^|]*')) then
          freed = freed + redis.call('ZREM', holders, holder)
        end
      end
      redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now - LOST_S)
      local used = redis.call('ZCARD', holders) + redis.call('ZCOUNT', waiting, '-inf', now)
      while used < tonumber(most) and call_next(waiting, KEYS[2], KEYS[3], now) do
        used = used + 1
        called = called + 1
      end
    end
  end
  -- One of perhaps many values of `by`, or a limit that may have no jobs any more. An ask, or the next job of the
  -- queue, lists it again.
  if (reset or string.find(name, '^[^:/]*:')) and redis.call('EXISTS', holders, waiting) == 0 then
    redis.call('HDEL', KEYS[1], name)
  end
end
return { freed, called }
