"""Limited: takes jobs from the queues of a group that have limits of their own.

Runs in the master's event loop, for the fetcher, which starts the jobs. limits/take.lua decides how many may
start; a queue from which no more may is left alone until then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from pyworkers.protocol.limits import QueueLimit
from pyworkers.server.fetching.source import Source
from pyworkers.server.fetching.waits import Waits
from pyworkers.store.jobs import InProgress, Taken
from pyworkers.store.transport.link import Link

# How often to look for a slot of a queue that another server may have freed.
_OTHERS_S = 0.5


class Limited:
    """The limits of a group's queues, in ``limits``."""

    def __init__(self, link: Link, waits: Waits) -> None:
        self._link = link
        self._waits = waits
        self._takes = itertools.count()
        self.limits: Mapping[str, QueueLimit] = {}

    def use(self, limits: Mapping[str, QueueLimit]) -> None:
        """Have these limits from now on."""
        self.limits = limits

    def among(self, sources: Iterable[Source]) -> list[Source]:
        """The queues that have limits."""
        return [source for source in sources if source.queue in self.limits]

    async def take(self, mine: InProgress, queue: str, wanted: int) -> Taken:
        """Take up to ``wanted`` jobs that may start now.

        Raises LeaseLostError when a peer has recovered the lists, and PyworkersError.
        """
        name = f"{mine.identity} {next(self._takes)}"
        return await mine.take(self._link, queue, self.limits[queue], wanted, name)

    def taken(self, source: Source, found: Taken, wanted: int) -> None:
        """Rest until more jobs of a queue may start, or wait for the next one."""
        source.worked()
        if found.after_s is not None or found.full:
            source.rest(_OTHERS_S if found.after_s is None else found.after_s, found.full)
        elif len(found.jobs) < wanted:
            self._waits.begin_in_place(source)
