
-- Shared by the scripts that scan sorted sets: the loader puts it in front of them.

-- Call `visit(job, score)` for each member in one part of a scan of a sorted set, which lists all that stay. Returns the
-- next cursor, '0' at the end.
local function scan(key, cursor, most, most_bytes, visit)
  local jobs, bytes = 0, 0
  repeat
    local page = redis.call('ZSCAN', key, cursor, 'COUNT', 10)
    cursor = page[1]
    for n = 1, #page[2], 2 do
      jobs, bytes = jobs + 1, bytes + #page[2][n]
      visit(page[2][n], page[2][n + 1])
    end
  until cursor == '0' or jobs >= most or bytes >= most_bytes
  return cursor
end
