"""What a worker process shares with the master: job socket, outcome pipe and page."""
