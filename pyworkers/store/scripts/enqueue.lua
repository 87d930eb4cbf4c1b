-- Push a thousand jobs of one request, all or none: for people and programs, who may send it twice.
-- The receipt of a request is written in the step that pushes its jobs; a second one is answered from it. One receipt
-- has all thousands of a request: another request is refused before any of its jobs is pushed.
--
-- KEYS 1 receipt  2 … as in push.lua
-- ARGV 1 digest of the request, or '' for a request without a receipt  2 life of the receipt in s
--      3 number of this thousand  4 … as in push.lua
-- Returns what push.lua returns; or, and nothing was done:
--      { 'kept', jids and duplicates as in 'pushed' … } of the receipt
--      { 'taken' }: the receipt is from another request

local kept = ARGV[1] ~= '' and redis.call('HMGET', KEYS[1], 'digest', ARGV[3])
if kept and kept[1] then
  if kept[1] ~= ARGV[1] then
    return { 'taken' }
  end
  -- It must not expire between the thousands of a request that is sent again.
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  if kept[2] then
    return { 'kept', unpack(cjson.decode(kept[2])) }
  end
end
local reply, jobs = push_jobs(2, 4)
if kept and reply[1] == 'pushed' then
  local receipt, any = {}, false
  for place, job in ipairs(jobs) do
    receipt[2 * place - 1] = job.jid
    receipt[2 * place] = reply[place + 1]
    any = any or reply[place + 1] == ''
  end
  -- Where all are duplicates nothing was done, and a later request may succeed.
  if any then
    redis.call('HSET', KEYS[1], 'digest', ARGV[1], ARGV[3], cjson.encode(receipt))
    redis.call('EXPIRE', KEYS[1], ARGV[2])
  end
end
return reply
