"""Migrations of the app: they make no table."""
