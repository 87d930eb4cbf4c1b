"""Connections to Redis: how they are opened, spoken on, and what each error of theirs means."""
