"""Lists of jobs: what the pages of queues and job sets share."""
