"""Adoption: finds the jobs that Redis has moved for this server, and whose reply was lost.

Runs in the master's event loop. It gives no job back; a stop does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyworkers import logs
from pyworkers.server.fetching.outbox import Outbox
from pyworkers.server.fetching.source import Source
from pyworkers.server.pool.jobs import Jobs
from pyworkers.store.calls import arun_one
from pyworkers.store.jobs import InProgress
from pyworkers.store.scripts import Commands

log = logs.get_logger()


class Adoption:
    """Runs the strays of all queues of a group."""

    def __init__(self, link: Commands, sources: Sequence[Source], jobs: Jobs, outbox: Outbox) -> None:
        self._link = link
        self._sources = sources
        self._jobs = jobs
        self._outbox = outbox

    async def adopt(self, inprogress: InProgress) -> None:
        """Run the jobs that two checks find unclaimed. Raises PyworkersError.

        From a queue from which the server does not fetch, it adopts nothing (a stop gives these jobs back),
        and it sends no check: replies come in order, so the replies to earlier commands arrive before a stop
        closes the connection.
        """
        # LLEN first: it is cheap, while jobs may be large.
        fetches = any(source.open for source in self._sources)
        if not fetches or await self._none_unclaimed(inprogress):
            self.forget()
            return
        for source in self._sources:
            if source.open:
                await self._adopt_from(source, inprogress)
            else:
                source.unclaimed.forget()

    def forget(self) -> None:
        """Forget the unclaimed jobs that were found."""
        for source in self._sources:
            source.unclaimed.forget()

    async def _adopt_from(self, source: Source, inprogress: InProgress) -> None:
        queue, unclaimed = source.queue, source.unclaimed
        jobs = await arun_one(self._link, inprogress.jobs(queue))
        if not source.open or unclaimed.in_doubt():
            return
        known = self._jobs.known(queue) + self._outbox.known(queue)
        for raw in unclaimed.strays(Counter(jobs) - known):
            log.warning("job.adopted", queue=queue)
            self._jobs.deliver(queue, raw)
        await unclaimed.end_doubtful_move(self._link)

    async def _none_unclaimed(self, inprogress: InProgress) -> bool:
        held = 0
        for source in self._sources:
            held += await arun_one(self._link, inprogress.count(source.queue))
        return held <= self._jobs.busy + self._outbox.outcomes
