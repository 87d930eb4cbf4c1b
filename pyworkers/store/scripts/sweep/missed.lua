-- The jobs of one page that are missing: those that this sweep did not find are marked with its token.
--
-- KEYS 1 turn  2 missing
-- ARGV 1 token  2 life of the turn in ms  3 cursor
-- Returns { next cursor, then the jobs that an earlier sweep did not find either }, or nothing without the turn.

if not sweeping() then
  return nil
end
local page = redis.call('HSCAN', KEYS[2], ARGV[3], 'COUNT', 1000)
local found = { page[1] }
for n = 1, #page[2], 2 do
  local field, value = page[2][n], page[2][n + 1]
  local token, name = string.match(value, '^(%S+) (.*)$')
  if token == '-' then
    redis.call('HSET', KEYS[2], field, ARGV[1] .. ' ' .. name)
  elseif token ~= ARGV[1] then
    found[#found + 1] = field
  end
end
return found
