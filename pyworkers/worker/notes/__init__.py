"""The writes of a running job before its end: its progress and its checkpoint."""
