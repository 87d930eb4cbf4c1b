"""Typed arguments: annotations of jobs, honoured at both ends (extra ``types``)."""
