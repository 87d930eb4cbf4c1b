"""Watched: the data that pages show next to the counts, read again and again as long as a page asks for it.

Runs in the event loop of the dashboard. Data that no page asks for is neither read nor kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pyworkers.api.target import Operation
from pyworkers.protocol.keys import Keys

# Viewers ask each second; one that is slow, or a second that fails, loses nothing.
_WANTED_S = 5.0
# Pages that show different things and are live at the same time; most cost Redis a read a second.
_MOST = 20
# A large part that seldom changes is sent for this long: a viewer that misses an event gets it with the next.
_NEWS_S = 2.5

T = TypeVar("T")


class Latest(Generic[T]):
    """The result of the last read by the steps of ``read``; ``known`` is False before the first one."""

    def __init__(self, read: Callable[[Keys], Operation[T]], every_s: float = 0.0) -> None:
        self.read = read
        self.known = False
        self.value: T | None = None
        self.read_at = -math.inf
        """By ``time.monotonic``."""
        self._every_s = every_s

    def add(self, found: T) -> None:
        """Take the result of a read."""
        self.known, self.value, self.read_at = True, found, time.monotonic()

    def is_due(self) -> bool:
        """True if the last read is too old."""
        return time.monotonic() - self.read_at >= self._every_s

    def is_news(self) -> bool:
        """True if it was just read. What was read before is older than the page of a viewer that comes."""
        return time.monotonic() - self.read_at < _NEWS_S


class WatchList:
    """All that pages show now, by the names of their feeds."""

    def __init__(self) -> None:
        self._watched: dict[str, Latest[Any]] = {}
        self._until: dict[str, float] = {}

    def ask(self, feed: str, read: Callable[[Keys], Operation[T]], every_s: float = 0.0) -> Latest[T]:
        """The data of a feed, of reads after the first time that it was asked for; unknown until then."""
        self._forget()
        if feed not in self._watched:
            if len(self._watched) >= _MOST:
                return Latest(read)
            self._watched[feed] = Latest(read, every_s)
        self._until[feed] = time.monotonic() + _WANTED_S
        return self._watched[feed]

    def due(self) -> list[Latest[Any]]:
        """All that pages ask for, and that is to be read now."""
        self._forget()
        return [latest for latest in self._watched.values() if latest.is_due()]

    def clear(self) -> None:
        """Forget all."""
        self._watched, self._until = {}, {}

    def _forget(self) -> None:
        now = time.monotonic()
        for feed in [feed for feed, until in self._until.items() if now > until]:
            del self._watched[feed], self._until[feed]
