"""Search: finds the lists of other programs among the names of all keys, which no key names.

Used by ``stats``, to show the queues, and bounded in time there; by ``foreign``, and by the sweep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys, literal
from pyworkers.store.calls import Steps, decoded, one
from pyworkers.store.transport.replies import scanned

# Redis scans a thousand names in 1 to 2 ms (measured with ten million), and runs nothing else meanwhile.
_PER_ROUND_TRIP = 1000
_TOO_MANY = "there are too many keys to look at all of them"
END = b"0"
"""The cursor of a search that has ended, or not begun."""
REST_S = 30.0
"""The time between two searches, for a program that calls ``lists`` repeatedly."""


class Search:
    """Finds the in-progress lists of go-workers and go-workers2 among the names of all keys.

    Bounded: each call continues the scan for ``budget_s`` seconds, and its result is kept for ``REST_S``.
    """

    def __init__(
        self, keys: Keys, budget_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pattern = f"{literal(keys.queue(''))}*{INPROGRESS_SUFFIX}"
        self._budget_s = budget_s
        self._clock = clock
        self._due = -math.inf
        self._cursor = END
        self._complete = False
        self._found: set[str] = set()
        self._shortfall = ""

    @property
    def shortfall(self) -> str:
        """Why the last result may lack lists; empty if it is complete."""
        return self._shortfall

    def lists(self) -> Steps[list[str]]:
        """The names of all in-progress lists that were found, pyworkers' included."""
        if self._clock() >= self._due:
            try:
                yield from self._scan()
            except StoreError as error:
                if error.code != "NOPERM":
                    raise
                self._shortfall = error.message
            self._due = self._clock() + REST_S
        return sorted(self._found)

    def _scan(self) -> Steps[None]:
        deadline = self._clock() + self._budget_s
        self._cursor, names = yield from scan(self._pattern, self._cursor, lambda: self._clock() < deadline)
        self._found.update(names)
        self._complete = self._complete or self._cursor == END
        self._shortfall = "" if self._complete else _TOO_MANY


def scan(
    pattern: str, cursor: bytes = END, goes_on: Callable[[], bool] = lambda: True
) -> Steps[tuple[bytes, list[str]]]:
    """The lists with such a name, and the cursor at which the search goes on; ``END`` if it has ended."""
    options = ("MATCH", pattern, "COUNT", _PER_ROUND_TRIP, "TYPE", "list")
    found: dict[str, None] = {}
    while True:
        cursor, names = yield from one("SCAN", cursor, *options, read=scanned)
        found |= dict.fromkeys(map(decoded, names))
        if cursor == END or not goes_on():
            return cursor, list(found)
