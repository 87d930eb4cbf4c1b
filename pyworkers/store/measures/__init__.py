"""Measures: how long jobs wait, how many ran in each queue and class, and how long they took."""
