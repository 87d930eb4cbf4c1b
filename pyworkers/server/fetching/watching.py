"""Watching: settles and takes large jobs by transactions, while nothing else changes their list.

Runs in the master's event loop. Otherwise the exchange script does it, which copies each job several times.
"""

from __future__ import annotations

from pyworkers.errors import PyworkersError
from pyworkers.server.fetching.large import LargeJobs
from pyworkers.server.fetching.outbox import Portion
from pyworkers.server.fetching.source import Source
from pyworkers.server.waiting import now
from pyworkers.store.fetching.watched import Watched, exchange_watched, watch
from pyworkers.store.jobs import Exchange, InProgress
from pyworkers.store.transport.link import Link

# Until the next attempt after one that failed: Redis is out of memory, an ACL forbids it, or another client
# changes the list.
_PAUSE_S = 1.0


class Watching:
    """The list of a group with one queue, ``source``."""

    def __init__(self, link: Link, large: LargeJobs, source: Source) -> None:
        self._link = link
        self._large = large
        self._source = source
        self._watched: Watched | None = None
        self._again_at = 0.0

    def forget(self) -> None:
        """Watch no more: the jobs are in other lists."""
        self._watched = None

    async def exchange(self, mine: InProgress, portion: Portion, wanted: int) -> Exchange | None:
        """Settle a portion and take jobs; None if nothing was done. Raises PyworkersError."""
        watched, self._watched = self._watched, None
        # The blocking move may take a job at any time.
        if watched is None or self._source.waits:
            return None
        if (places := self._large.places(watched.queue, portion)) is None:
            return None
        held = len(self._large.known(watched.queue))
        result = await exchange_watched(mine, self._link, watched, places, wanted, held)
        if result is None:
            self._again_at = now() + _PAUSE_S
            return None
        self._watched = result.watched
        return result.found

    async def begin(self, mine: InProgress) -> None:
        """Watch the list if it holds large jobs alone."""
        queue = self._source.queue
        if self._watched or self._source.waits or now() < self._again_at:
            return
        if self._large.places(queue, []) is None:
            return
        try:
            self._watched = await watch(mine, self._link, queue, len(self._large.known(queue)))
        except PyworkersError:
            # The next exchange deals with the outage.
            return
        if self._watched is None:
            self._again_at = now() + _PAUSE_S
