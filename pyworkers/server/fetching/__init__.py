"""Moves jobs from the queues of one group to its pool, and their outcomes back."""
