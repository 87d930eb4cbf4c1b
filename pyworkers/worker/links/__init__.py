"""The built-in links around a handler: context, logging, retry, running, time limit."""
