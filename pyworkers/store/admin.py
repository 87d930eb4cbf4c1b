"""Admin: the blocking connection of ``api`` to one Redis, with the names of its keys.

Used in the command line and in users' programs; never by the server. Other modules of this folder build the
commands, as requests, which an asyncio program can run as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar

from pyworkers.config.checks import mask_url
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Operation, Pages, run
from pyworkers.store.transport.connections import Connection, connect

T = TypeVar("T")


class Admin:
    """Runs requests over one client, which connects at its first use, in the process that uses it.

    All methods raise RedisUnavailableError and StoreError. Threads may share it.
    """

    def __init__(self, config: RedisConfig) -> None:
        self.config = config
        self.keys = Keys(config.namespace)

    def __repr__(self) -> str:
        return f"Admin({mask_url(self.config.url)!r}, namespace={self.config.namespace!r})"

    @cached_property
    def redis(self) -> Connection:
        """The client; closed when this object is garbage-collected."""
        return connect(self.config)

    def run(self, operation: Operation[T]) -> T:
        """Run a request or steps."""
        return run(self.redis, operation)

    def each(self, pages: Pages[T]) -> Iterator[T]:
        """The items of all pages; a page is read when its first item is needed."""
        while not pages.ended:
            yield from self.run(pages.next_page())
