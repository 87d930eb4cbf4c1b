-- Note the members of some batches as missing, until their jobs are found. Members that are batches themselves
-- are left out: their own members are looked for. A member that is a deleted batch is in no place, as a job.
-- Conclude a batch all of whose members have run or ended, if the server that counted the last one has not.
--
-- KEYS 1 turn  2 missing  3 queues
-- ARGV 1 token  2 life of the turn in ms  3 most jobs to look for  4 number of shares  5 share
--      6 part of the set to read: '' for all sets that are small, else 'CURSOR PART', of a single batch
--      then the ids of the batches
-- Returns { number of batches that were read, number of members, next cursor, then for each large set: id and
-- part }, or nothing without the turn.

if not sweeping() then
  return nil
end
local SMALL, PER_PAGE, MOST = 1000, 1000, 2000
local batch = batches()
local noted = note_for(ARGV[3], ARGV[4], ARGV[5])
local number, seen, cursor, large = 0, 0, '0', {}

-- Members of an open batch may be noted there before they are pushed. But a job that adds members, and was
-- deleted meanwhile, keeps the batch open: its hold has its id.
local function wanted(key, id, open, member)
  if not batch.is_hold(member) then
    return not open and member
  end
  local jid = string.sub(member, 6)
  return batch.has(key, jid) and jid
end

local function note_all(key, id, open, members)
  for _, member in ipairs(members) do
    local jid = wanted(key, id, open, member)
    if jid and redis.call('HEXISTS', batch.key(jid), 'open') == 0 then
      seen = seen + 1
      noted('M', jid, id)
    end
  end
end

-- False for a batch that is skipped, or gone, in the one around it.
local function counts(id, parent)
  return not parent or batch.has(batch.key(string.sub(parent, string.find(parent, ' ', 1, true) + 1)), id)
end

-- True for a cancelled batch: servers still refuse its members. One inside a cancelled batch is cancelled, too: the
-- program that cancels them may have died. So is one whose producer has died while it pushed members.
local function is_cancelled(id, key, parent)
  local around = parent and batch.key(string.sub(parent, string.find(parent, ' ', 1, true) + 1))
  if batch.is_orphan(key) or around and redis.call('HEXISTS', around, 'cancel_at') == 1 then
    batch.cancel(id)
  elseif redis.call('HEXISTS', key, 'cancel_at') == 0 then
    return false
  end
  batch.refuse(id)
  return true
end

local function note_batch(id)
  local key = batch.key(id)
  local facts = redis.call('HMGET', key, 'open', 'success_at', 'complete_at', 'parent')
  if not facts[1] or facts[2] then
    return
  end
  local cancelled = is_cancelled(id, key, facts[4])
  local open = facts[1] ~= '0' and not cancelled
  local waiting = cancelled and batch.left(key) or redis.call('SCARD', key .. ':members')
  if not open and not facts[3] and waiting == 0 and counts(id, facts[4]) then
    -- The last member was counted by a server with flow 1, for which members that are gone and not done never add up.
    batch.conclude(id)
  end
  local from, part = string.match(ARGV[6], '^(%d+) (.*)$')
  if from then
    local page = redis.call('SSCAN', key .. part, from, 'COUNT', PER_PAGE)
    cursor = page[1]
    note_all(key, id, open, page[2])
    return
  end
  -- Those that are dead stay dead: Redis may trim the set of dead jobs.
  for n = 2, 3 do
    if redis.call('SCARD', key .. batch.PARTS[n]) > SMALL then
      large[#large + 1] = id
      large[#large + 1] = batch.PARTS[n]
    else
      note_all(key, id, open, redis.call('SMEMBERS', key .. batch.PARTS[n]))
    end
  end
end

while seen < MOST and 7 + number <= #ARGV do
  -- A key of the wrong type disturbs no other batch.
  pcall(note_batch, ARGV[7 + number])
  number = number + 1
end
return { number, seen, cursor, unpack(large) }
