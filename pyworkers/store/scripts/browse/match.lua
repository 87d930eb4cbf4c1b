-- Find the members of a sorted set whose bytes contain a text, in one part of a scan, which lists all that stay. It only
-- reads.
--
-- KEYS 1 sorted set
-- ARGV 1 cursor, '0' at first  2 the text; '' for all
-- Returns { next cursor, '0' at the end, then member and score in turn }.

local MOST = 1000

if not holds(KEYS[1], 'zset') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[1] .. ' is not a zset')
end
local reply = { '0' }
reply[1] = scan(KEYS[1], ARGV[1], MOST, PAGE_BYTES, function(raw, score)
  if string.find(raw, ARGV[2], 1, true) then
    reply[#reply + 1] = raw
    reply[#reply + 1] = score
  end
end)
return reply
