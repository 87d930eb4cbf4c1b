-- Shared by the scripts that other programs send: Redis takes fewer forms of a number than Lua does, and refuses the
-- others in the middle of a script, after earlier writes.

-- A whole number from 1, without zeros in front.
local function is_positive(value)
  return string.find(value, '^[1-9]%d*$') ~= nil
end

-- A time to live that Redis takes.
local function is_life(value)
  return is_positive(value) and #value <= 15
end

-- A score: no infinity, and no number that only its exponent makes 0.
local function is_score(value)
  local number, digits = tonumber(value), string.match(value, '^-?([%d.]+)')
  if not (number and digits and string.find(value, '^[%d.eE+-]+$')) or math.abs(number) == math.huge then
    return false
  end
  return number ~= 0 or not string.find(digits, '[1-9]')
end

