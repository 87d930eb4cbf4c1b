-- For the scripts that make names of keys: the prefix of all keys, which is an argument after all others.
local PREFIX = table.remove(ARGV)

