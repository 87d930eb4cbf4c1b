"""The pages: a module each, with its ``ROUTES``.

It may have ``RESOURCES``, its JSON, and ``FEEDS``, its live parts.
"""
