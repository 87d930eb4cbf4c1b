"""The pages: a module each, with its ``ROUTES``."""
