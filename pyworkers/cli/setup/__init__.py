"""Commands for the first day: a new application, completion in a shell."""
