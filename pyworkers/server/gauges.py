"""Gauges: notes once a minute how many jobs run and how long queues let jobs wait, for the charts.

Runs in the event loop of the master that has the turn, for all servers of one Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.turn import Turn
from pyworkers.server.waiting import now
from pyworkers.store.measures import gauges
from pyworkers.store.store import Store

_EVERY_S = 60.0
# After the begin of a minute by Redis' clock: the timer of this machine may be early.
_LATER_S = 0.5
# Before, the heartbeat has not shown this server.
_FIRST_S = 3.0


class GaugeWriter(Part):
    """Notes the gauges in each minute in which this server has the ``turn``; ``served`` are its queues."""

    name = "gauges"

    def __init__(self, store: Store, turn: Turn, health: Health, served: Callable[[], Sequence[str]]) -> None:
        super().__init__(health)
        self._store = store
        self._turn = turn
        self._served = served
        self._first_at = now() + _FIRST_S
        self._folded = -1
        """The ten minutes since the epoch in which earlier ones were last folded."""

    async def look(self) -> float:
        """Note them, unless another server does."""
        if (left_s := self._first_at - now()) > 0:
            return left_s
        if not await self._turn.take():
            return _EVERY_S
        keys = self._store.keys
        noted_at = await self._store.arun(gauges.note(keys, self._served()))
        if (part := int(noted_at // 600)) != self._folded:
            await self._store.arun(gauges.fold(keys, noted_at))
            self._folded = part
        return _EVERY_S - noted_at % _EVERY_S + _LATER_S
