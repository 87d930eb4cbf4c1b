"""Large: fetches large jobs a few at a time, and settles them by an extract where this is safe.

Runs in the master's event loop. It keeps the order in which large jobs were fetched, which is the one of
their in-progress list; if it does not know a place, only the search takes longer.

``Cuts`` finds the one outcome with which Redis, or a proxy in front of it, ends the connection. Such a limit
(``proto-max-bulk-len``) is not known here, and the same call would be sent again for ever. A call without
outcomes shows whether it is an outage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Mapping, Sequence

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.protocol.extract import LARGE_BYTES, Extract, ends_of, equal_extracts, extract
from pyworkers.protocol.outcome import DONE, Fate
from pyworkers.server import running
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.outbox import Outbox, Portion
from pyworkers.store.jobs import Exchange, InProgress, LeaseLostError, Settlement
from pyworkers.store.transport.link import Link

log = logs.get_logger()

_NOTHING: Mapping[int, Extract] = {}
# The order of at most this many jobs is kept; a group has fewer large ones in work.
_MOST = 10_000
_UNKNOWN = 0, b""
# While the master hands out the jobs of one exchange, Redis has nothing to do, and the other way round: with
# twenty jobs of 1 MB in each, workers ran out of jobs, and the master grew by 40 MB.
_EXCHANGE_BYTES = 2 << 20


class LargeJobs:
    """The large jobs of a group that are not settled."""

    def __init__(self, jobs: JobTable, outbox: Outbox) -> None:
        self._jobs = jobs
        self._outbox = outbox
        self._order: dict[int, tuple[int, bytes]] = {}
        """By the identity of a job's bytes, because their hash takes as long as a copy."""
        self._fetched = 0
        self.most = sys.maxsize
        """How many jobs the next exchange may take, if they are as large as the largest of the last one."""

    def note(self, jobs: Sequence[bytes]) -> None:
        """Note the order and the size of the jobs of one fetch."""
        largest = max(map(len, jobs))
        if largest <= LARGE_BYTES:
            self.most = sys.maxsize
            return
        self.most = max(1, _EXCHANGE_BYTES // largest)
        if len(self._order) > _MOST:
            self._order.clear()
        for raw in jobs:
            self._fetched += 1
            self._order[id(raw)] = self._fetched, raw

    def forget(self) -> None:
        """Forget the order of the jobs: they are in other lists."""
        self._order.clear()

    def known(self, queue: str) -> list[bytes]:
        """The jobs that the list of a queue should hold."""
        return self._jobs.raws(queue) + self._outbox.raws(queue)

    def places(self, queue: str, portion: Portion) -> list[int] | None:
        """The indexes of the jobs of a portion in the list of a queue, which it leaves without any effect.

        None unless all jobs of the list are large, and their order is known: no two of them may look alike,
        because the one that was settled could be the other.
        """
        if not self._order:
            return None
        if not all(job.queue == queue and job.report.outcome is DONE for job in portion):
            return None
        known = self.known(queue)
        order = sorted(self._place(raw) for raw in known)
        if not order or not order[0] or len({ends_of(raw) for raw in known}) < len(known):
            return None
        if any(len(raw) <= LARGE_BYTES for raw in known):
            return None
        # The oldest one is the last of the list.
        return [-1 - order.index(self._place(job.raw)) for job in portion]

    def _place(self, raw: bytes) -> int:
        """The position of a job in the order; 0 if it is unknown."""
        return self._order.get(id(raw), _UNKNOWN)[0]

    def settled(self, portion: Portion) -> None:
        """Forget jobs whose outcome is in Redis."""
        if self._order:
            for job in portion:
                if job.report.outcome.fate is not Fate.NOTE:
                    self._order.pop(id(job.raw), None)

    def extracts(self, portion: Portion) -> Mapping[int, Extract]:
        """The extracts of the large jobs of a portion, by their places in it, from 0.

        A large job without one is settled by all its bytes: another job of the list has an equal extract,
        but differs. If the wrong one of the two were removed, it would be lost in a crash while it runs.
        """
        if not self._order:
            return _NOTHING
        found = {}
        removed: set[int] = set()
        for place, job in enumerate(portion):
            raw = job.raw
            if len(raw) > LARGE_BYTES:
                known = self.known(job.queue)
                if not any(equal_extracts(raw, other) for other in known):
                    mine = self._place(raw)
                    older = [o for o in known if self._place(o) < mine and id(o) not in removed]
                    found[place] = extract(raw, len(known), -1 - len(older))
            if job.report.outcome.fate is not Fate.NOTE:
                removed.add(id(raw))
        return found


# After this many lost calls in a row, outcomes are sent one by one; one that is lost alone twice is buried.
_TOGETHER = 2
# The connection was lost, or Redis has given a reason without its own code before it closed the connection.
_CODES = frozenset({"UNREACHABLE", "PROTOCOL", "ERR", ""})


class Cuts:
    """Counts the calls in a row with outcomes that were lost although Redis answers."""

    def __init__(self, outbox: Outbox, link: Link) -> None:
        self._outbox = outbox
        self._link = link
        self._lost = 0
        self._last: Settlement | None = None
        """The outcome that was lost alone the last time."""
        self._noted = False

    @property
    def searching(self) -> bool:
        """True if the last call was lost although Redis answers: the next one continues the search."""
        return self._noted

    def portion(self) -> Portion:
        """The outcomes of the next call: one, while it must be found which of them is the reason."""
        portion = self._outbox.portion()
        return portion[:1] if self._lost >= _TOGETHER else portion

    async def watch(self, mine: InProgress, portion: Portion, call: Awaitable[Exchange]) -> Exchange:
        """The result of a call with this portion; note a failure. Raises what the call raises."""
        self._noted = False
        try:
            found = await call
        except PyworkersError as error:
            # The first one is most likely an outage, whose end must not wait for another call.
            if portion and error.code in _CODES and (not self._lost or await self._answers(mine)):
                self._note(portion, error)
                self._noted = True
            raise
        if portion and (self._lost < _TOGETHER or len(portion) == len(self._outbox)):
            self._lost = 0
        return found

    async def _answers(self, mine: InProgress) -> bool:
        """True if the same script works without outcomes: neither Redis nor a proxy is away."""
        # The first one may still be sent over the connection that Redis is closing.
        for _ in range(2):
            try:
                await mine.exchange(self._link, (), 0, (), time.time())
                return True
            except PyworkersError:
                continue
            except LeaseLostError:
                return False
        return False

    def _note(self, portion: Portion, error: PyworkersError) -> None:
        single = self._lost >= _TOGETHER
        self._lost += 1
        if not single:
            self._last = None
            return
        again, self._last = portion[0] is self._last, portion[0]
        if again:
            self._lost, self._last = 0, None
            job, outcome = portion[0], portion[0].report.outcome
            size = len(job.raw) + outcome.size
            reason = f"Redis cuts off a call with its {size} bytes: {error.message}"
            named = running.names(job.raw, job.queue)
            fate = outcome.fate.name.lower()
            log.error("job.unsettled", queue=job.queue, **named, fate=fate, error=reason)
            self._outbox.replace_unsendable(job)
