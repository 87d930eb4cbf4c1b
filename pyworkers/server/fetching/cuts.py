"""Cuts: finds the one outcome with which Redis, or a proxy in front of it, ends the connection.

Runs in the master's event loop. Such a limit (``proto-max-bulk-len``) is not known here, and the same call
would be sent again for ever. An outage is told apart by a call without outcomes.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server.fetching.outbox import Outbox, Portion
from pyworkers.store.jobs import Exchange, InProgress, LeaseLostError
from pyworkers.store.transport.link import Link

# After this many lost calls, outcomes are sent one by one.
_TOGETHER = 2
# The connection was lost, or Redis has given a reason without a code of its own before it closed it.
_CODES = frozenset({"UNREACHABLE", "PROTOCOL", "ERR", ""})

log = logs.get_logger()


class Cuts:
    """Counts the calls with outcomes that were lost although Redis answers."""

    def __init__(self, outbox: Outbox, link: Link) -> None:
        self._outbox = outbox
        self._link = link
        self._lost = 0

    def portion(self) -> Portion:
        """The outcomes of the next call: one, while it must be found which of them is the reason."""
        portion = self._outbox.portion()
        return portion[:1] if self._lost >= _TOGETHER else portion

    async def watch(self, mine: InProgress, portion: Portion, call: Awaitable[Exchange]) -> Exchange:
        """The result of a call with this portion; note a failure. Raises what the call raises."""
        try:
            found = await call
        except PyworkersError as error:
            if portion and error.code in _CODES and await self._answers(mine):
                self._note(portion, error)
            raise
        if self._lost and len(portion) == len(self._outbox):
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
        self._lost += 1
        if self._lost > _TOGETHER and len(portion) == 1:
            queue, raw, report = portion[0]
            fate, size = report.outcome.fate.name.lower(), len(raw) + report.outcome.size
            reason = f"Redis cuts off a call with its {size} bytes: {error.message}"
            log.error("job.unsettled", queue=queue, fate=fate, error=reason)
            self._outbox.bury(portion[0])
