-- Shared by the scripts that list jobs for people: the loader puts it in front of them.

-- As in extract.py.
local LARGE, EDGE, SAMPLES, SAMPLE, TOKEN = 16384, 1024, 32, 16, 20

-- The text that represents a job (extract.py).
local function token_of(raw)
  if #raw > LARGE then
    local parts = { #raw, raw:sub(1, EDGE), raw:sub(-EDGE) }
    local room = #raw - 2 * EDGE - SAMPLE
    for i = 0, SAMPLES - 1 do
      local first = EDGE + math.floor(i * room / (SAMPLES - 1))
      parts[#parts + 1] = raw:sub(first + 1, first + SAMPLE)
    end
    raw = table.concat(parts)
  end
  return redis.sha1hex(raw):sub(1, TOKEN)
end
