-- Read a part of a queue or a sorted set for people. It only reads. Jobs are added and removed between two
-- parts: each part names the last job that it has read, and the next begins behind that job, which may have
-- moved. If that job is gone, the part begins a little earlier, so that none is left out.
--
-- KEYS 1 list or sorted set
-- ARGV 1 'up', or 'down': from the highest score, or from the newest job of a queue
--      2 place, counted from there  3 token of the job before it, or ''  4 score of that job, or ''
--      5 most jobs to read  6 most bytes to read, about  7 bytes above which a job is cut
--      8 bytes to keep of the beginning of such a job  9 and of its end
--      10 most jobs to return
--      11… texts: only jobs that contain all of them are returned; '=NAMES:TEXT' exactly, '~NAMES:TEXT', which is
--        in lower case, in upper or lower case. NAMES, separated by commas: the text is in the value of a
--        member of that name, at any depth, and nowhere else; without names anywhere
-- Returns {jobs in the key, or -1: a key of another type,  place after the last job read,  token and score of
--          that job,  then for each job returned: place, score or '', token, length, its bytes or beginning, its
--          end or ''}.

-- How far from its place a job is looked for, on each side: some milliseconds.
local REACH, SEARCH_BYTES = 2000, 4194304

local key, down = KEYS[1], ARGV[1] == 'down'
local kind = redis.call('TYPE', key).ok
if kind ~= 'list' and kind ~= 'zset' then
  return { kind == 'none' and 0 or -1, 0, '', '' }
end
local total = redis.call(kind == 'list' and 'LLEN' or 'ZCARD', key)

-- The place after the last job that was read.
local function resumed(place, token, score)
  local found
  local function compare(at, raw)
    found = token_of(raw) == token and at
    return found
  end
  walk(key, kind, down, math.max(0, place - 1), place - 1, SEARCH_BYTES, compare)
  local lowest, highest = 0, math.huge
  if not found and kind == 'zset' and tonumber(score) then
    -- It is among the jobs of its score, or gone.
    lowest = redis.call('ZCOUNT', key, down and '(' .. score or '-inf', down and '+inf' or '(' .. score)
    highest = lowest + redis.call('ZCOUNT', key, score, score)
    place = math.max(lowest, math.min(place, highest))
  end
  if not found then
    walk(key, kind, down, place, math.min(place + REACH, highest - 1), SEARCH_BYTES, compare)
  end
  local earliest = place
  if not found then
    earliest = walk_back(key, kind, down, place - 1, math.max(place - REACH, lowest), SEARCH_BYTES, compare)
  end
  return found and found + 1 or earliest
end

local place = tonumber(ARGV[2])
if place > 0 and ARGV[3] ~= '' then
  place = resumed(place, ARGV[3], ARGV[4])
end
local limit, head, tail = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local exact, folded = {}, {}
for i = 11, #ARGV do
  local sign, names, text = ARGV[i]:match('^(.)([^:]*):(.*)$')
  local quoted = {}
  for name in names:gmatch('[^,]+') do
    quoted[#quoted + 1] = '"' .. name .. '"'
  end
  local texts = sign == '=' and exact or folded
  texts[#texts + 1] = { text = text, names = quoted }
end

-- The place of the quotes that end the text which begins at `start`; 92 is a backslash.
local function text_end(raw, start)
  local stop = raw:find('"', start, true)
  while stop do
    local before = stop - 1
    while before >= start and raw:byte(before) == 92 do
      before = before - 1
    end
    if (stop - before) % 2 == 1 then
      return stop
    end
    stop = raw:find('"', stop + 1, true)
  end
  return #raw
end

-- The text at `start`, or the beginning of another value: up to the first bracket that closes a list or object,
-- and 100 bytes at most: in hostile bytes, the values of all members may reach to the end.
local function value_at(raw, start)
  local first = raw:sub(start, start)
  if first == '"' then
    return raw:sub(start, text_end(raw, start + 1))
  end
  local ends = (first == '[' or first == '{') and '^[^%]}]*' or '^[^,}%s]*'
  return raw:sub(start, start + 100):match(ends)
end

-- Members of one name to look at in one job, each for about a microsecond. The reader judges a job with more.
local MEMBERS = 100

-- Within a text, quotes have a backslash before them: `name`, with its quotes, is a member, or a whole text.
local function member_holds(raw, name, text)
  local _, at = raw:find(name, 1, true)
  local left = MEMBERS
  while at and left > 0 do
    left = left - 1
    local start = raw:match('^%s*:%s*()', at + 1)
    if start and value_at(raw, start):find(text, 1, true) then
      return true
    end
    _, at = raw:find(name, at + 1, true)
  end
  return at ~= nil
end

local function holds(raw, sought)
  -- Most jobs lack the text: to find that takes a tenth of the time.
  if not raw:find(sought.text, 1, true) then
    return false
  end
  for _, name in ipairs(sought.names) do
    if member_holds(raw, name, sought.text) then
      return true
    end
  end
  return #sought.names == 0
end

local function holds_all(raw, texts)
  for _, sought in ipairs(texts) do
    if not holds(raw, sought) then
      return false
    end
  end
  return true
end

local function wanted(raw)
  return holds_all(raw, exact) and (#folded == 0 or holds_all(raw:lower(), folded))
end

local most, returned = tonumber(ARGV[10]), 0
local reply, last_job, last_score = { total, 0, '', '' }, nil, ''
reply[2] = walk(key, kind, down, place, place + ARGV[5] - 1, tonumber(ARGV[6]), function(at, raw, score)
  last_job, last_score = raw, score or ''
  if wanted(raw) then
    local large = #raw > limit
    for _, value in ipairs({
      at,
      last_score,
      token_of(raw),
      #raw,
      large and raw:sub(1, head) or raw,
      large and raw:sub(-tail) or '',
    }) do
      reply[#reply + 1] = value
    end
    returned = returned + 1
    return returned == most
  end
end)
if last_job then
  reply[3], reply[4] = token_of(last_job), last_score
end
return reply
