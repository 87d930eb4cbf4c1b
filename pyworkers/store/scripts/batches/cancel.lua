-- Cancel batches: they take no more members, and servers refuse those that they have. Their waiting members stay where
-- they are, for withdraw.lua. A batch that has succeeded, or is unknown, is left alone.
--
-- KEYS 1 queues  2 pyworkers:cancelled
-- ARGV 1 '1' to have servers refuse the members of these batches, which costs a note for each  then the ids
-- Returns for each the number of members that have not ended, -1 if it has succeeded, -2 if it is unknown; or an error,
-- WRONGTYPE, after which the first ones are cancelled.

local batch = batches()
if not holds(KEYS[2], 'zset') then
  return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is not a zset')
end
allow_writes(KEYS[2])
local answers = {}
for n = 2, #ARGV do
  local id = ARGV[n]
  local key = batch.key(id)
  if not batch.touch(key) then
    answers[n - 1] = -2
  elseif redis.call('HEXISTS', key, 'success_at') == 1 then
    answers[n - 1] = -1
  else
    batch.cancel(id)
    if ARGV[1] == '1' then
      batch.refuse(id)
    end
    batch.conclude(id)
    answers[n - 1] = math.max(0, batch.left(key))
  end
end
return answers
