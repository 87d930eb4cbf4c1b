"""Integrations: pyworkers in other frameworks, on public names only. Each file needs its framework."""
