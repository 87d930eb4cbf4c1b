-- Push the jobs of one request, all or none: for people and programs, who name batches and may send it twice.
-- The receipt of a request is written in the step that pushes its jobs; a second one is answered from it.
--
-- KEYS 1 receipt  2 … those of push.lua
-- ARGV 1 digest of the request, or '' for a request without a receipt  2 life of the receipt in s
--      3 number of batches, then their ids: the batches that get members
--      then those of push.lua
-- Returns what push.lua returns; or { 'kept', digest, jids and duplicates as in 'pushed' … } of the receipt,
--      { 'unknown', batch } or { 'ended', batch }, and nothing was done.

if ARGV[1] ~= '' then
  local kept = redis.call('GET', KEYS[1])
  if kept then
    return { 'kept', unpack(cjson.decode(kept)) }
  end
end
local batch, number = batches(), tonumber(ARGV[3])
for n = 4, 3 + number do
  local key = batch.key(ARGV[n])
  if not batch.touch(key) then
    return { 'unknown', ARGV[n] }
  elseif redis.call('HEXISTS', key, 'success_at') == 1 then
    return { 'ended', ARGV[n] }
  end
end
local first = 4 + number
local reply = push_jobs(2, first)
if ARGV[1] ~= '' and reply[1] == 'pushed' then
  local receipt, jobs = { ARGV[1] }, tonumber(ARGV[first])
  local row = first + 2 + ARGV[first + 1]
  for place = 1, jobs do
    receipt[2 * place] = ARGV[row + 7 * (place - 1) + 1]
    receipt[2 * place + 1] = reply[place + 1] == 0 and '' or reply[place + 1]
  end
  redis.call('SET', KEYS[1], cjson.encode(receipt), 'EX', ARGV[2])
end
return reply
