-- Return the turn: no other sweep begins during the pause.
--
-- KEYS 1 turn  2 missing
-- ARGV 1 token  2 life of the turn in ms  3 pause in ms
-- Returns 1, or nothing without the turn.

if not sweeping() then
  return nil
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
return 1
