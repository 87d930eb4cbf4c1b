"""Stubs: files in which programs of other languages find the jobs of an application with their types."""
