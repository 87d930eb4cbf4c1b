"""The commands for the options of protocol/flow: unique jobs, limits, batches, results; and the audit."""
