"""Cpus: which worker wakes up for a job, and which CPU it gets when."""
