"""Alarms: a process that tells people when something is wrong with the jobs, and when it is over."""
