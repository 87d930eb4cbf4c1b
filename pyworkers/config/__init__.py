"""The configuration: its fields, their checks, and the sources of their values."""
