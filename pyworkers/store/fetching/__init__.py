"""Fetching: two ways to take jobs beside the exchange script of ``jobs``."""
