"""Portions: long lists in parts, each of which is one command.

Pure; used by all that sends many items to Redis, or reads many jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

MOST_BYTES = 16 << 20
"""Of the jobs that one command sends: a gigabyte of them would block Redis for seconds."""


def portions(
    items: Iterable[Any], size: int, bytes_of: Callable[[Any], int] | None = None
) -> Iterable[list[Any]]:
    """The items in lists of ``size``; never more than one list in memory.

    ``bytes_of`` an item, if it has some: a list ends also when it has ``MOST_BYTES``.
    """
    portion: list[Any] = []
    left = MOST_BYTES
    for item in items:
        portion.append(item)
        if bytes_of is not None:
            left -= bytes_of(item)
        if len(portion) == size or left <= 0:
            yield portion
            portion, left = [], MOST_BYTES
    if portion:
        yield portion


# A page is in the memory of Redis, on the wire, and in the memory of the reader.
_PAGE_BYTES = 1 << 20
_FIRST = 10


class PageSize:
    """How many jobs one command reads: ``most``, and fewer if they are large. A payload may be megabytes."""

    def __init__(self, most: int, most_bytes: int = _PAGE_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self.jobs = min(most, _FIRST)
        """Of the next page; few until their size is known."""

    def note(self, raws: Iterable[bytes]) -> None:
        """Note the jobs of a page: the next has about as large ones, and at most twice as many."""
        largest = max(map(len, raws), default=None)
        if largest is not None:
            self.jobs = max(1, min(2 * self.jobs, self._most, self._most_bytes // max(1, largest)))
