"""What is in Redis for the options of protocol/flow: unique jobs, limits, batches, results."""
