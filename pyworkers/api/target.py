"""Target: the Redis of the objects in this package, from a URL, a configuration or the environment."""

from __future__ import annotations

import os

from pyworkers.config.fields import RedisConfig
from pyworkers.store.admin import Admin
from pyworkers.store.transport.connections import config_for

__all__ = ["Admin", "Where", "admin_of"]

Where = str | RedisConfig | Admin | None
"""A URL, the ``[redis]`` part of a configuration, an Admin, or None for the environment (see ``Client``)."""


def admin_of(where: Where, namespace: str | None = None) -> Admin:
    """A connection to that Redis. ``namespace`` is used only with a URL or None. Raises ConfigError."""
    if isinstance(where, Admin):
        return where
    if isinstance(where, RedisConfig):
        return Admin(where)
    return Admin(config_for(where, namespace, os.environ))
