"""Everything that talks to Redis; the only package that imports redis-py."""
