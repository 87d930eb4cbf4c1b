"""The pages: each module here is one, with its ``ROUTES`` (``application.py`` takes all that it finds).

It may have ``RESOURCES``, its JSON, and ``FEEDS``, its live parts.
"""
