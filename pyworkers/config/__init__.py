"""The configuration: its fields, their checks, and where their values come from."""
