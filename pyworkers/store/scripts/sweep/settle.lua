-- Apply the effects of the ends of jobs that another program has moved to `dead`, if they are still there.
--
-- KEYS 1 turn  2 missing  3 dead
--      then the keys of each effect
-- ARGV 1 token  2 life of the turn in ms  3 place of the last argument of the jobs
--      then the jobs
--      then for each effect: place of its job, counted from 1, name and arguments (protocol/effects)
-- Returns { number of the jobs that are there, then the error of each effect that failed }, or nothing without
-- the turn.

if not sweeping() then
  return nil
end
local last = tonumber(ARGV[3])
local there, reply = {}, { 0 }
for n = 4, last do
  if redis.call('ZSCORE', KEYS[3], ARGV[n]) then
    there[n - 3] = true
    reply[1] = reply[1] + 1
  end
end
local failed = apply_effects(4, last + 1, function(place)
  return there[place]
end)
for n = 2, #failed, 2 do
  reply[#reply + 1] = failed[n]
end
return reply
