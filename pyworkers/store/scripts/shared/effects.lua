-- Shared by the scripts that remove jobs: the loader puts it in front of them. An effect is a write that belongs
-- to the end of a job (protocol/effects); it is applied only if the script has removed that job.

local function reason_of(why)
  return type(why) == 'table' and why.err or tostring(why)
end

-- Add lines to the log of a job (protocol/flow/joblog.py), the last of which says what is there: `n` is the number of
-- bytes since the first line, `run` and `i` name the line. Lines that are there are not added again.
local LOG_BYTES, LOG_OVERHEAD = 65536, 64
local function append_log(key, lines, run, first)
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  local fields = last and last[2] or {}
  local size = tonumber(fields[4]) or 0
  local seen = run ~= '' and fields[6] == run and tonumber(fields[8]) or -1
  local number = tonumber(first)
  for line in string.gmatch(lines, '[^\n]+') do
    if number > seen then
      size = size + #line + LOG_OVERHEAD
      redis.call('XADD', key, '*', 'v', line, 'n', size, 'run', run, 'i', number)
    end
    number = number + 1
  end
  while true do
    local head = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
    if not head or size - (tonumber(head[2][4]) or 0) + #head[2][2] + LOG_OVERHEAD <= LOG_BYTES then
      return
    end
    redis.call('XDEL', key, head[1])
  end
end

-- Apply the effects whose keys start at KEYS k and whose arguments start at ARGV a: for each the place of its
-- job, counted from 1, its name and its arguments. `applies(place)` is true if that job was removed.
-- Returns place and error of each effect that failed, in turn; the others are applied nevertheless.
local function apply_effects(k, a, applies)
  local function store_fields(k, a)
    for name, value in pairs(cjson.decode(ARGV[a])) do
      redis.call('HSET', KEYS[k], name, value)
    end
    redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
  end
  -- Name → number of keys, number of arguments, function; k and a are the places of the first of each.
  local made
  local effects = {
    NoteRun = { 1, 3, function(k, a)
      note_run(KEYS[k], ARGV[a], ARGV[a + 1], ARGV[a + 2])
    end },
    Unlock = { 1, 1, function(k, a)
      if redis.call('GET', KEYS[k]) == ARGV[a] then
        redis.call('DEL', KEYS[k])
      end
    end },
    FreeSlot = { 1, 1, function(k, a)
      redis.call(redis.call('TYPE', KEYS[k]).ok == 'set' and 'SREM' or 'ZREM', KEYS[k], ARGV[a])
    end },
    PassSlot = { 4, 1, function(k, a)
      if redis.call('ZREM', KEYS[k], ARGV[a]) == 1 then
        call_next(KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], clock())
      end
    end },
    NoteStart = { 1, 2, function(k, a)
      redis.call('ZADD', KEYS[k], clock(), ARGV[a])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
    end },
    CountOut = { 3, 3, function(k, a)
      -- Check the types first: otherwise the member would be counted out, and then the push would fail.
      if not (holds(KEYS[k + 1], 'list') and holds(KEYS[k + 2], 'set')) then
        error({ err = 'WRONGTYPE ' .. KEYS[k + 1] .. ' or ' .. KEYS[k + 2] .. ' has the wrong type' })
      end
      if redis.call('HEXISTS', KEYS[k], ARGV[a]) == 1 and redis.call('HINCRBY', KEYS[k], ARGV[a], -1) == 0 then
        redis.call('SADD', KEYS[k + 2], ARGV[a + 1])
        redis.call('LPUSH', KEYS[k + 1], ARGV[a + 2])
      end
    end },
    StoreValue = { 1, 2, function(k, a)
      -- SET itself replaces a key of any type.
      if not holds(KEYS[k], 'string') then
        error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' is not a string' })
      end
      redis.call('SET', KEYS[k], ARGV[a], 'EX', ARGV[a + 1])
    end },
    StoreFields = { 1, 2, store_fields },
    StoreIteration = { 1, 2, store_fields },
    DeleteIteration = { 1, 0, function(k)
      redis.call('DEL', KEYS[k])
    end },
    Announce = { 1, 2, function(k, a)
      redis.call('XADD', KEYS[k], 'MAXLEN', 1, '*', 'v', ARGV[a])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
    end },
    DeleteKey = { 1, 0, function(k)
      redis.call('DEL', KEYS[k])
    end },
    DeleteField = { 1, 1, function(k, a)
      redis.call('HDEL', KEYS[k], ARGV[a])
    end },
    Push = { 2, 2, function(k, a)
      if not (holds(KEYS[k], 'list') and holds(KEYS[k + 1], 'set')) then
        error({ err = 'WRONGTYPE ' .. KEYS[k] .. ' or ' .. KEYS[k + 1] .. ' has the wrong type' })
      end
      redis.call('SADD', KEYS[k + 1], ARGV[a])
      redis.call('LPUSH', KEYS[k], ARGV[a + 1])
    end },
    CountMember = { 2, 5, function(k, a)
      made = made or batches()
      made.count(ARGV[a], { ARGV[a + 1] }, ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
    end },
    AppendLog = { 1, 4, function(k, a)
      append_log(KEYS[k], ARGV[a + 2], ARGV[a], ARGV[a + 1])
      redis.call('EXPIRE', KEYS[k], ARGV[a + 3])
    end },
    EndLog = { 1, 2, function(k, a)
      if redis.call('EXISTS', KEYS[k]) == 1 then
        append_log(KEYS[k], ARGV[a], '', 0)
        redis.call('EXPIRE', KEYS[k], ARGV[a + 1])
      end
    end },
    KeepFinished = { 2, 4, function(k, a)
      local ttl = tonumber(ARGV[a + 3])
      redis.call('XADD', KEYS[k], 'MAXLEN', '~', ARGV[a + 2], '*', 'v', ARGV[a + 1])
      local oldest = (tonumber(redis.call('TIME')[1]) - ttl) * 1000
      redis.call('XTRIM', KEYS[k], 'MINID', '~', string.format('%d', math.max(0, oldest)))
      redis.call('EXPIRE', KEYS[k], ttl)
      redis.call('SADD', KEYS[k + 1], ARGV[a])
      if redis.call('TTL', KEYS[k + 1]) < ttl then
        redis.call('EXPIRE', KEYS[k + 1], ttl)
      end
    end },
    HoldHead = { 1, 2, function(k, a)
      local now = redis.call('TIME')
      local till = now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[a]
      redis.call('HSET', KEYS[k], 'until', string.format('%d', till), 'head', ARGV[a + 1])
    end },
    PauseQueue = { 1, 1, function(k, a)
      redis.call('SADD', KEYS[k], ARGV[a])
    end },
  }
  local failed = {}
  local place, last = 0, #ARGV
  while a < last do
    local keys, args, apply = unpack(effects[ARGV[a + 1]])
    place = place + 1
    if applies(tonumber(ARGV[a])) then
      local done, why = pcall(apply, k, a + 2)
      if not done then
        failed[#failed + 1] = place
        failed[#failed + 1] = reason_of(why)
      end
    end
    k = k + keys
    a = a + 2 + args
  end
  return failed
end

