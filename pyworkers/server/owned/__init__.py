"""Servers that another program has started with ``pyworkers.serve``, and that end with it."""
