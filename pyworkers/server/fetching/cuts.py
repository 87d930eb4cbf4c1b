"""Cuts: finds the one outcome with which Redis, or a proxy in front of it, ends the connection.

Runs in the master's event loop. Such a limit (``proto-max-bulk-len``) is not known here, and the same call
would be sent again for ever. An outage is told apart by a call without outcomes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server import running
from pyworkers.server.fetching.outbox import Outbox, Portion
from pyworkers.store.jobs import Exchange, InProgress, LeaseLostError, Settlement
from pyworkers.store.transport.link import Link

# After this many lost calls in a row, outcomes are sent one by one; one that is lost alone twice is buried.
_TOGETHER = 2
# The connection was lost, or Redis has given a reason without a code of its own before it closed it.
_CODES = frozenset({"UNREACHABLE", "PROTOCOL", "ERR", ""})

log = logs.get_logger()


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
            self._outbox.bury(job)
