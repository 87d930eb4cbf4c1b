"""Benchmarks against other job servers: ``python -m contrib.bench --help``, and README.md here."""
