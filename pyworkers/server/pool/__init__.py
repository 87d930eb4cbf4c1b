"""The workers of one queue: how many there are, which job each has, and what becomes of a lost one."""
