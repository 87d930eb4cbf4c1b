"""The built-in links around a handler: logging, retry, stats."""
