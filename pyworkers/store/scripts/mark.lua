-- Note that a job shall not run, wherever it is. Servers look at the notes once a second.
--
-- KEYS 1 notes
-- ARGV 1 jid  2 life of a note in s
-- Returns nothing.

note(KEYS[1], ARGV[1], ARGV[2])
