-- Add a note that a job must not run. Servers read the note within a second.
--
-- KEYS 1 notes
-- ARGV 1 jid  2 life of a note in s
-- Returns nothing.

note(KEYS[1], ARGV[1], ARGV[2])
