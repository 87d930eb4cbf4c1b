"""Processes: what servers write to Redis about themselves, and the signals that are sent to them."""
