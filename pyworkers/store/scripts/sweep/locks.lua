-- Note one page of the locks as missing, until their jobs are found; forget those that are released.
--
-- KEYS 1 turn  2 missing  3 locks
-- ARGV 1 token  2 life of the turn in ms  3 cursor  4 most jobs to look for  5 number of shares  6 share
-- Returns { next cursor, number of locks }, or nothing without the turn.

if not sweeping() then
  return nil
end
local prefix = PREFIX .. 'pyworkers:'
local page = redis.call('SSCAN', KEYS[3], ARGV[3], 'COUNT', 1000)
local noted = note_for(ARGV[4], ARGV[5], ARGV[6])
local seen, released = 0, {}
for _, name in ipairs(page[2]) do
  local jid = redis.pcall('GET', prefix .. name)
  if type(jid) == 'string' then
    seen = seen + 1
    noted('L', jid, name)
  else
    released[#released + 1] = name
  end
end
for _, name in ipairs(released) do
  redis.call('SREM', KEYS[3], name)
end
return { page[1], seen }
