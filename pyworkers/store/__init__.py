"""The code that connects to Redis; the only package that imports redis-py."""
