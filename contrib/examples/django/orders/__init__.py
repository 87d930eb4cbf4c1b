"""Orders, which a job confirms."""
