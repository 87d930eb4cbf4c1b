
-- Shared by the scripts that delete jobs on request: the loader puts it in front of them.

-- What is kept for an undo, as in store/undo.py: of one deletion, and of all together.
local UNDO_LIFE_S, MOST_KEPT, MOST_KEPT_BYTES, MOST_DELETIONS = 600, 100000, 67108864, 1000

-- Keeps the bytes of jobs that this deletion removes: `add` one, `lose` some, and `note` the numbers at the end. The
-- oldest other deletions make room for it. What Redis refuses is lost, and the jobs are deleted nevertheless; so are all
-- while its memory is full, because the deletion is to free some. Call it before the first write of the script.
local function keeping(deletions, hash, id)
  local now = tonumber(clock())
  local at, jobs, bytes, lost = now, 0, 0, 0
  local others, over, total = {}, {}, 0
  local all = holds(deletions, 'hash') and redis.call('HGETALL', deletions) or {}
  for i = 1, #all, 2 do
    local began, its_jobs, its_bytes, its_lost = string.match(all[i + 1], '^([%d.]+) (%d+) (%d+) (%d+)$')
    began = tonumber(began)
    if all[i] == id and began then
      at, jobs, bytes, lost = began, tonumber(its_jobs), tonumber(its_bytes), tonumber(its_lost)
    elseif not began or began < now - UNDO_LIFE_S then
      over[#over + 1] = all[i]
    else
      others[#others + 1] = { id = all[i], at = began, bytes = tonumber(its_bytes) }
      total = total + its_bytes
    end
  end
  table.sort(others, function(one, other)
    return one.at > other.at
  end)

  local function write_numbers()
    return redis.pcall('HSET', deletions, id, string.format('%.3f %d %d %d', at, jobs, bytes, lost))
  end

  -- Redis refuses the first write if its memory is full, and none after another one.
  local first = write_numbers()
  local is_full = type(first) == 'table' and string.find(first.err, '%f[%u]OOM ') ~= nil
  for _, other in ipairs(over) do
    redis.call('HDEL', deletions, other)
  end

  local function drop_oldest()
    local oldest = table.remove(others)
    total = total - oldest.bytes
    redis.call('HDEL', deletions, oldest.id)
    redis.call('UNLINK', PREFIX .. 'pyworkers:deletion:' .. oldest.id)
  end

  -- `is_over`: less than 64 KB of room is left, which grows no more.
  local kept = { is_over = is_full or jobs >= MOST_KEPT or bytes > MOST_KEPT_BYTES - 65536 }
  function kept.lose(number)
    lost = lost + number
  end

  -- `place` is the word of a place, `score` '' in a queue.
  function kept.add(place, score, raw)
    if is_full or jobs >= MOST_KEPT or bytes + #raw > MOST_KEPT_BYTES then
      return kept.lose(1)
    end
    -- Sizes of another program may have a sum that never gets small.
    while #others > 0 and total + bytes + #raw > MOST_KEPT_BYTES do
      drop_oldest()
    end
    local written = redis.pcall('HSET', hash, jobs + 1, #place .. ' ' .. score .. ' ' .. place .. raw)
    if type(written) == 'number' then
      jobs, bytes = jobs + 1, bytes + #raw
    else
      kept.lose(1)
    end
  end

  function kept.note()
    while #others >= MOST_DELETIONS do
      drop_oldest()
    end
    if jobs + lost == 0 then
      redis.pcall('HDEL', deletions, id)
    elseif type(write_numbers()) == 'number' then
      redis.call('EXPIRE', deletions, UNDO_LIFE_S)
    end
    redis.call('EXPIRE', hash, UNDO_LIFE_S)
  end
  return kept
end
