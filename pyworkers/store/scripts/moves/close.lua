-- Close a move in its target: no portion arrives from now on, whichever process sends it.
--
-- KEYS 1 receipt
-- Returns the number of the last portion that has arrived, also if it was closed before; -1 without a receipt

local portion = string.match(redis.call('GET', KEYS[1]) or '', '%d+$')
if not portion then
  return -1
end
-- Not a number, so push.lua finds no receipt.
redis.call('SET', KEYS[1], 'closed ' .. portion)
return tonumber(portion)
