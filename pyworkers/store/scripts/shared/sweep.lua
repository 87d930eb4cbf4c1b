-- Shared by the scripts of the sweep: the loader puts it in front of them.
--
-- KEYS 1 turn  2 missing, and ARGV 1 token  2 life of the turn in ms, are the same for each of them. `missing` is a
-- HASH: 'L:JID', 'M:JID' or 'T:JID', for a lock, a member or a tracked job whose end is awaited, to the token of the
-- sweep that first did not find the job ('-' before that), a space, and the name of the lock or the id of the batch.

local MISSING_LIFE_S = 900
-- The states of a job that has ended (status.py).
local ENDED = { done = true, failed = true, dead = true, cancelled = true, expired = true }

-- True if the caller still has the turn, which is renewed. Without it, another sweep uses these keys.
local function sweeping()
  if redis.call('GET', KEYS[1]) ~= ARGV[1] then
    return false
  end
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  redis.call('EXPIRE', KEYS[2], MISSING_LIFE_S)
  return true
end

-- Add each text under the name "jid" in a value, at any depth.
local function add_inner(value, ids)
  for name, inner in pairs(value) do
    if name == 'jid' and type(inner) == 'string' then
      ids[inner] = true
    elseif type(inner) == 'table' then
      add_inner(inner, ids)
    end
  end
end

-- Add the ids in the text of a job: its own, and the ids of the steps that follow in a chain. Arguments may hold a
-- "jid" as well: at worst, a job counts as found that is gone.
local function add_ids(raw, ids)
  for jid in string.gmatch(raw, '"jid"%s*:%s*"([^"\\]*)"') do
    ids[jid] = true
  end
  -- Few texts have an escaped name or id, and only these are decoded.
  if string.find(raw, '\\u', 1, true) or string.find(raw, '"jid"%s*:%s*"[^"]*\\') then
    local read, job = pcall(cjson.decode, raw)
    if read and type(job) == 'table' then
      add_inner(job, ids)
    end
  end
end

-- The jobs with these ids are found: strike them off. Returns the number of jobs that are still missing.
local function strike(ids)
  local fields = {}
  local function flush()
    if #fields > 0 then
      redis.call('HDEL', KEYS[2], unpack(fields))
      fields = {}
    end
  end
  for jid in pairs(ids) do
    fields[#fields + 1] = 'L:' .. jid
    fields[#fields + 1] = 'M:' .. jid
    fields[#fields + 1] = 'T:' .. jid
    -- Lua passes at most 8000 arguments.
    if #fields >= 4000 then
      flush()
    end
  end
  flush()
  return redis.call('HLEN', KEYS[2])
end

-- True for a job that is not known to have ended; false for a batch, and for a key of the wrong type.
local function is_awaited(prefix, jid)
  local state = redis.pcall('HGET', prefix .. 'job:' .. jid, 'state')
  return type(state) ~= 'table'
    and not ENDED[state]
    and redis.call('EXISTS', prefix .. 'result:' .. jid, prefix .. 'batch:' .. jid) == 0
end

-- A function that notes a job as missing: 'L', 'M' or 'T', its id, and the name of the lock or the batch. `most` and the
-- number of shares bound the memory: a sweep looks for the jobs of one share, and for the jobs of an earlier sweep.
local function note_for(most, shares, share)
  local number = redis.call('HLEN', KEYS[2])
  local room = most - number
  return function(kind, jid, name)
    if room > 0 and (shares == '1' or tonumber(string.sub(redis.sha1hex(jid), 1, 8), 16) % shares == tonumber(share)) then
      room = room - redis.call('HSETNX', KEYS[2], kind .. ':' .. jid, '- ' .. name)
      if number == 0 then
        redis.call('EXPIRE', KEYS[2], MISSING_LIFE_S)
        number = 1
      end
    end
  end
end

