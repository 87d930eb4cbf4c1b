"""Target: the Redis of the objects in this package, from a URL, a configuration or the environment."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

from pyworkers.config.fields import RedisConfig
from pyworkers.config.producers import config_for, stores_for
from pyworkers.config.stores import Stores
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from pyworkers.store.calls import Operation, Steps
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async

__all__ = [
    "Admin",
    "AtRedis",
    "Countable",
    "Operation",
    "Steps",
    "Store",
    "Where",
    "admin_of",
    "store_of",
    "stores_of",
]

Where = str | RedisConfig | Admin | None
"""A URL, the ``[redis]`` part of a configuration, an Admin, or None for the environment (see ``Client``)."""


def admin_of(where: Where, namespace: str | None = None) -> Admin:
    """A connection to that Redis. ``namespace`` is used only with a URL or None. Raises ConfigError."""
    if isinstance(where, Admin):
        return where
    if isinstance(where, RedisConfig):
        return Admin(where)
    return Admin(config_for(where, namespace, os.environ))


class AtRedis:
    """What the sets and logs of this package have in common: the Redis in which they are."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)


class Countable(ABC):
    """Things that are counted in Redis. They are true also if there are none."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of them."""

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True


def stores_of(where: Where, namespace: str | None) -> Stores | None:
    """All Redis servers of the environment, if ``where`` names no Redis itself. Raises ConfigError."""
    if where is not None or namespace is not None:
        return None
    return stores_for(None, None, os.environ)


def store_of(admin: Admin) -> Store:
    """The same Redis for an asyncio program: ``arun`` runs the steps that ``Admin.run`` runs blocking.

    Raises ConfigError.
    """
    return Store(connect_async(admin.config), Keys(admin.config.namespace))
