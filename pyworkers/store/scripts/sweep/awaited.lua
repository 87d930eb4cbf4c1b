-- Note one page of the jobs whose end is awaited as missing, until they are found; forget those that have ended, and
-- those for which no program has asked lately. A batch ends by its members.
--
-- KEYS 1 turn  2 missing  3 awaited
-- ARGV 1 token  2 life of the turn in ms  3 cursor  4 most jobs to look for  5 number of shares  6 share
--      7 seconds for which an ask counts
-- Returns { next cursor, number of jobs }, or nothing without the turn.

if not sweeping() then
  return nil
end
local prefix = PREFIX .. 'pyworkers:'
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', redis.call('TIME')[1] - ARGV[7])
local page = redis.call('ZSCAN', KEYS[3], ARGV[3], 'COUNT', 1000)
local noted = note_for(ARGV[4], ARGV[5], ARGV[6])
local seen, ended = 0, {}
for n = 1, #page[2], 2 do
  local jid = page[2][n]
  if is_awaited(prefix, jid) then
    seen = seen + 1
    noted('T', jid, 'status')
  else
    ended[#ended + 1] = jid
  end
end
for _, jid in ipairs(ended) do
  redis.call('ZREM', KEYS[3], jid)
end
return { page[1], seen }
