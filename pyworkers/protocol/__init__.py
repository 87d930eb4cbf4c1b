"""The data in Redis: key names, the job envelope, outcomes, and their rules. No module does I/O."""
