"""The version of pyworkers, in a module that imports nothing, so that the build can read it."""

__version__ = "0.3.0"
"""The version of pyworkers, as a text."""
