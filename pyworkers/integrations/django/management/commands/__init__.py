"""The command ``manage.py pyworkers``."""
