"""Unclaimed: the jobs in one in-progress list that this server has not received, or not yet.

Runs in the master's event loop. It reads no list; ``adoption`` does.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from pyworkers.store.fetching.waiter import PATIENCE_S, Waiter
from pyworkers.store.scripts import Commands


class _DoubtfulMove(NamedTuple):
    """A blocking move without a reply, which may have taken a job; ``since`` is in monotonic seconds."""

    move: int
    since: float


class Unclaimed:
    """The unclaimed jobs in the list of one queue, and the blocking move that may still bring one of them.

    A job that two checks find unclaimed is a *stray*. The first check alone is no proof, because the reply
    may be on the way: the blocking move that was under way then is ended, and must have its reply before the
    second one.
    """

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._jobs: Counter[bytes] = Counter()
        self._doubtful: _DoubtfulMove | None = None

    def forget(self) -> None:
        """Forget the unclaimed jobs that were found."""
        self._jobs.clear()
        self._doubtful = None

    def in_doubt(self) -> bool:
        """True while the move that was under way at the first check has no reply, for 4 s at most."""
        doubtful = self._doubtful
        if doubtful is None or doubtful.move != self._waiter.under_way:
            self._doubtful = None
            return False
        if time.monotonic() - doubtful.since > 2 * PATIENCE_S:
            self._waiter.drop_connection()
        return True

    def strays(self, found: Counter[bytes]) -> list[bytes]:
        """The jobs that the last check found, too; the others are kept for the next check."""
        strays = found & self._jobs
        self._jobs = found - strays
        return list(strays.elements())

    async def end_doubtful_move(self, control: Commands) -> None:
        """Make the reply arrive that may have one of these jobs."""
        if self._jobs and self._doubtful is None and (move := self._waiter.under_way):
            self._doubtful = _DoubtfulMove(move, time.monotonic())
            # UNBLOCK makes a pending reply arrive now.
            await self._waiter.unblock(control)
