-- Push the jobs of one request, all or none: for people and programs, who may send it twice.
-- The receipt of a request is written in the step that pushes its jobs; a second one is answered from it.
--
-- KEYS 1 receipt  2 … those of push.lua
-- ARGV 1 digest of the request, or '' for a request without a receipt  2 life of the receipt in s
--      then those of push.lua
-- Returns what push.lua returns; or { 'kept', digest, jids and duplicates as in 'pushed' … } of the receipt,
-- and nothing was done.

if ARGV[1] ~= '' then
  local kept = redis.call('GET', KEYS[1])
  if kept then
    return { 'kept', unpack(cjson.decode(kept)) }
  end
end
local reply, jobs = push_jobs(2, 3)
if ARGV[1] ~= '' and reply[1] == 'pushed' then
  local receipt, any = { ARGV[1] }, false
  for place, job in ipairs(jobs) do
    receipt[2 * place] = job.jid
    receipt[2 * place + 1] = reply[place + 1]
    any = any or reply[place + 1] == ''
  end
  -- Where all are duplicates nothing was done, and a later request may succeed.
  if any then
    redis.call('SET', KEYS[1], cjson.encode(receipt), 'EX', ARGV[2])
  end
end
return reply
