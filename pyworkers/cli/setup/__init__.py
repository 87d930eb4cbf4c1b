"""What serves the first day: a new application, completion in a shell, the names of other libraries."""
