"""Sweep: releases locks and counts members whose jobs other programs have deleted or moved to ``dead``.

Runs in the event loop of the master that has the turn. It also warns of servers that leave out the effects
of jobs, which it repairs.
"""

from __future__ import annotations

import asyncio
import math
import os
from typing import TypeVar

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.turn import Turn
from pyworkers.server.waiting import now
from pyworkers.store.calls import Steps
from pyworkers.store.flow.servers import uninformed
from pyworkers.store.flow.sweep import LIFE_S, MOST, begin, end, sweep
from pyworkers.store.store import Store

T = TypeVar("T")

# A sweep may take Redis 5% of its time: after each page it rests 20 times as long as the page took.
_RESTS = 20
# The share of a pause before the first sweep: just after its start, a server has the most other work.
_FIRST = 0.2
# Within the life of the turn.
_LONGEST_REST_S = LIFE_S / 4
# Between two lines in the log about a server of another program.
_AGAIN_S = 3600.0
_HINT = "it releases no locks and counts no batches: restart it with this version"
_FOREIGN = (
    "it breaks jobs of these queues: give them queues that only pyworkers serves, or see pyworkers check"
)

log = logs.get_logger()


class Sweep(Part):
    """Sweeps each ``pause_s``, or as often as a sweep takes, if this server has the ``turn``."""

    name = "sweep"

    def __init__(self, store: Store, turn: Turn, health: Health, pause_s: float) -> None:
        super().__init__(health)
        self._store = store
        self._turn = turn
        self._pause_s = pause_s
        self._shares = 1
        self._warned: dict[str, float] = {}
        """When each server was last logged that leaves out effects, by identity."""
        self._current: frozenset[str] = frozenset()
        self._first_at = now() + pause_s * _FIRST

    async def look(self) -> float:
        """Sweep, unless another server does."""
        if not await self._turn.take():
            return self._pause_s
        await self._warn()
        if (left_s := self._first_at - now()) > 0:
            return left_s
        keys, token, begun = self._store.keys, os.urandom(8).hex(), now()
        wait_s = await self._store.arun(begin(keys, token))
        if wait_s is not None:
            return min(wait_s or self._pause_s, self._pause_s)
        swept = await self._paced(sweep(keys, token, self._shares))
        self._shares = 1 + swept.held // MOST
        if swept.locks or swept.members or swept.tracked or swept.dead:
            log.warning(
                "flow.swept",
                locks=swept.locks,
                members=swept.members,
                tracked=swept.tracked,
                dead=swept.dead,
            )
        for reason in set(swept.errors):
            log.error("effect.failed", error=reason)
        pause_s = max(0.0, begun + self._pause_s - now())
        await self._store.arun(end(keys, token, pause_s))
        return pause_s

    async def _warn(self) -> None:
        """Log each server of an earlier version once, and those that break jobs each hour."""
        found = await self._store.arun(uninformed(self._store.keys, current=self._current))
        self._current = found.current
        for view in found.older:
            if self._is_due(view.identity, math.inf):
                log.warning("flow.old_server", owner=view.identity, version=view.version, hint=_HINT)
        for one in found.foreign:
            if self._is_due(one.view.identity, _AGAIN_S):
                uses = {"queues": list(one.uses), "features": one.features}
                log.warning(
                    "flow.foreign_server", owner=one.view.identity, program=one.program, **uses, hint=_FOREIGN
                )

    def _is_due(self, identity: str, pause_s: float) -> bool:
        if now() - self._warned.get(identity, -math.inf) < pause_s:
            return False
        self._warned[identity] = now()
        return True

    async def _paced(self, steps: Steps[T]) -> T:
        """Run the steps, with a rest after each call."""
        try:
            call = next(steps)
            while True:
                begun = now()
                reply = await self._store.arun(call)
                await asyncio.sleep(min((now() - begun) * _RESTS, _LONGEST_REST_S))
                hit("mid_sweep")
                call = steps.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
