"""Connections to Redis: opens them, sends commands, checks replies, and classifies errors."""
