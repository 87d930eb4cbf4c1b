"""Setup: a new application, completion in a shell, hints for the options of other libraries."""
