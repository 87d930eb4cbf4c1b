"""The built-in links around a handler: context, logging, effects, retry, running, limits."""
