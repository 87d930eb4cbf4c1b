"""Iterations: obeys Sidekiq's way to cancel a job, a field in the state of its iteration.

Used by the master's look at orders, and only for jobs that run for long: no job costs a command, and a server
without such a job sends none. What it finds becomes a note, as if ``cancel`` had been called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pyworkers.server.pool.running import Running
from pyworkers.store.orders import OrdersStore

# Sidekiq looks as often: STATE_FLUSH_INTERVAL in its job/iterable.rb.
LOOK_S = 5.0
# Those that a producer writes; the key of another one would have to be quoted.
_JID = re.compile(rb'"jid"\s*:\s*"([A-Za-z0-9_.:-]{1,128})"')
# Where producers put them: before the arguments, or behind them.
_EDGE = 2048


class Iterations:
    """Looks at the jobs that ran already at the look before."""

    def __init__(self, store: OrdersStore, running: Callable[[], Iterable[Running]]) -> None:
        self._store = store
        self._running = running
        self._seen: dict[tuple[str, int], list[str]] = {}
        self._looked_at = 0.0

    async def look(self, now: float) -> None:
        """Look, unless that was done a moment ago. ``now`` is monotonic seconds. Raises PyworkersError."""
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        before, self._seen = self._seen, {}
        jids: list[str] = []
        for job in self._running():
            key = (job.queue, job.number)
            self._seen[key] = before.get(key) or ids_in(job.raw)
            if key in before:
                jids += before[key]
        if jids:
            await self._store.heed(jids)


def ids_in(raw: bytes) -> list[str]:
    """What may be the id of a job: its arguments may hold ids of others, which costs a look, no more."""
    edges = raw if len(raw) <= 2 * _EDGE else raw[:_EDGE] + raw[-_EDGE:]
    return list({match[1].decode() for match in _JID.finditer(edges)})
