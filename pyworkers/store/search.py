"""Search: finds the in-progress lists of go-workers and go-workers2 among the names of all keys.

Used by ``stats``, to show the queues; never by the server. It scans the names of all keys, so it is bounded
in time, and its result is kept for a while.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys, literal
from pyworkers.store.calls import Steps, decoded, one

# Redis scans a thousand names in 1 to 2 ms (measured with ten million), and runs nothing else meanwhile.
_PER_ROUND_TRIP = 1000
_TOO_MANY = "there are too many keys to look at all of them"
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
        self._cursor = 0
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
                yield from self._scan(self._clock() + self._budget_s)
            except StoreError as error:
                if error.code != "NOPERM":
                    raise
                self._shortfall = error.message
            self._due = self._clock() + REST_S
        return sorted(self._found)

    def _scan(self, deadline: float) -> Steps[None]:
        options = ("MATCH", self._pattern, "COUNT", _PER_ROUND_TRIP, "TYPE", "list")
        while True:
            self._cursor, names = yield from one("SCAN", self._cursor, *options, read=tuple)
            self._found.update(map(decoded, names))
            if self._cursor == 0:
                self._shortfall, self._complete = "", True
                return
            if self._clock() >= deadline:
                self._shortfall = "" if self._complete else _TOO_MANY
                return
