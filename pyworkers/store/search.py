"""Search: finds the in-progress lists of go-workers and go-workers2 among the names of all keys.

Used by ``api`` for people who look at queues; never by the server. It scans the names of all keys, so it is
bounded in time, and its result is kept for a while.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import INPROGRESS_SUFFIX
from pyworkers.store.admin import Admin

# A thousand names take Redis a millisecond or two (seen with ten million), in which it does nothing else.
_PER_ROUND_TRIP = 1000
_TOO_MANY = "there are too many keys to look at all of them"
REST_S = 30.0
"""For how long what was found serves, in a program that looks again and again."""


class Search:
    """One search, for several looks: each continues where the last stopped, within ``budget_s`` seconds."""

    def __init__(
        self, admin: Admin, budget_s: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin = admin
        self._budget_s = budget_s
        self._clock = clock
        self._due = -math.inf
        self._cursor = 0
        self._complete = False
        self._found: set[str] = set()
        self.shortfall = ""
        """Why the last result may lack lists; empty if it is complete."""

    def keys(self) -> list[str]:
        """The names of all in-progress lists that were found, ours included. Raises PyworkersError."""
        if self._clock() >= self._due:
            try:
                self._scan(self._clock() + self._budget_s)
            except StoreError as error:
                if error.code != "NOPERM":
                    raise
                self.shortfall = error.message
            self._due = self._clock() + REST_S
        return sorted(self._found)

    def _scan(self, deadline: float) -> None:
        prefix = re.sub(r"([\[\]*?\\])", r"\\\1", self._admin.keys.queue(""))
        options = ("MATCH", f"{prefix}*{INPROGRESS_SUFFIX}", "COUNT", _PER_ROUND_TRIP, "TYPE", "list")
        while True:
            cursor, names = self._admin.run("SCAN", self._cursor, *options)
            self._found.update(name.decode(errors="surrogateescape") for name in names)
            self._cursor = int(cursor)
            if self._cursor == 0:
                self.shortfall, self._complete = "", True
                return
            if self._clock() >= deadline:
                self.shortfall = "" if self._complete else _TOO_MANY
                return
