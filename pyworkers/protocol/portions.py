"""Portions: long lists in parts, each of which is one command.

Pure; used by all that sends many items to Redis, or reads many jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def portions(items: Iterable[Any], size: int) -> Iterable[list[Any]]:
    """The items in lists of ``size``; never more than one list in memory."""
    portion: list[Any] = []
    for item in items:
        portion.append(item)
        if len(portion) == size:
            yield portion
            portion = []
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
        """Note the jobs of a page: the next ones are probably about as large."""
        largest = max(map(len, raws), default=1)
        self.jobs = max(1, min(self._most, self._most_bytes // max(1, largest)))
