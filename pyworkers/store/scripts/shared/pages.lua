-- Shared by the scripts that read jobs in portions: the loader puts it in front of them.

-- The jobs of a list or sorted set from an index on, at most `most`, and at most five jobs more than `most_bytes`: a thousand
-- jobs of a megabyte would block Redis for seconds, and double its memory. `from_end`: of a list, from the end that is
-- popped next. Also returns true if there are no others.
local function page_of(key, first, most, most_bytes, from_end)
  local kind = redis.call('TYPE', key).ok
  local raws, bytes, largest, wanted = {}, 0, 1, 5
  if kind ~= 'list' and kind ~= 'zset' then
    return raws, true
  end
  while #raws < most and bytes < most_bytes do
    local from = first + #raws
    wanted = math.min(wanted, most - #raws)
    local some
    if kind == 'list' and from_end then
      some = redis.call('LRANGE', key, -from - wanted, -from - 1)
    else
      some = redis.call(kind == 'list' and 'LRANGE' or 'ZRANGE', key, from, from + wanted - 1)
    end
    for n = 1, #some do
      local raw = some[from_end and kind == 'list' and #some + 1 - n or n]
      bytes, largest = bytes + #raw, math.max(largest, #raw)
      raws[#raws + 1] = raw
    end
    if #some < wanted then
      return raws, true
    end
    wanted = math.max(1, math.min(50, math.floor(most_bytes / largest)))
  end
  return raws, false
end

