-- Apply effects of jobs that are gone already.
--
-- KEYS the keys of each effect
-- ARGV for each effect: 1, name and arguments (protocol/effects)
-- Returns nothing.

apply_effects(1, 1, function()
  return true
end)
