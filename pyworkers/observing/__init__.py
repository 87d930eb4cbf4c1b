"""Observing: calls what observes jobs without letting it change them, and reads exceptions that resist."""
