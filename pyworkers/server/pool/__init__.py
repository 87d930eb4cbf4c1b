"""The workers of one queue: their number, the job of each, and the outcome of a lost job."""
