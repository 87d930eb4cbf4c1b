"""Queues: those of all queues, and what is said to all of them at once.

Runs in the master's event loop. A queue that a reload has dropped is *parting*: it takes no more jobs, but
its workers still finish theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server.health import Health
from pyworkers.server.manager import Manager
from pyworkers.server.pool.running import Running

log = logs.get_logger()


class Queues:
    """``serving`` and ``parting`` by queue; the master fills them."""

    def __init__(self) -> None:
        self.serving: dict[str, Manager] = {}
        self.parting: dict[str, Manager] = {}
        self.clearing = 0
        """How many earlier incarnations may still have jobs in their lists."""

    def everyone(self) -> list[Manager]:
        """All that may have workers."""
        return [*self.serving.values(), *self.parting.values()]

    def pids(self) -> list[int]:
        """All worker processes."""
        return [pid for manager in self.everyone() for pid in manager.pool.pids()]

    def running(self) -> list[Running]:
        """All jobs that are with a worker."""
        return [job for manager in self.everyone() for job in manager.deliveries.running()]

    # What people want

    def cancel_noted(self) -> None:
        """Have the jobs end that shall not run."""
        for manager in self.everyone():
            manager.deliveries.cancel_noted()

    async def set_paused(self, queues: frozenset[str]) -> None:
        """Fetch from all queues but these."""
        await asyncio.gather(*(m.set_paused(name in queues) for name, m in self.serving.items()))

    async def quiet(self) -> None:
        """Fetch nothing more, for good."""
        await asyncio.gather(*(manager.quiet() for manager in self.serving.values()))

    # What happens in Redis

    def leave_primary(self) -> None:
        """Go on with another server, which has become the primary."""
        log.warning("redis.failover")
        for manager in self.everyone():
            manager.leave()

    def move_to(self, identity: str) -> None:
        """Give up all claims, and go on as another incarnation."""
        for manager in self.everyone():
            manager.move_to(identity)

    async def clear_out(self, identity: str) -> None:
        """Give back what still came for an earlier incarnation."""
        self.clearing += 1
        await asyncio.gather(*(manager.clear_out(identity) for manager in self.everyone()))
        self.clearing -= 1

    async def check_waits(self) -> None:
        """Fetch over connections that work, after an outage."""
        await asyncio.gather(*(manager.check_wait() for manager in self.everyone()))

    async def adopt_strays(
        self, hold_any: Callable[[list[str]], Awaitable[bool]], health: Health, pause_s: float
    ) -> None:
        """Look again and again for jobs whose fetch never came to our knowledge, until cancelled.

        ``hold_any`` says whether Redis counts a job of any of these queues as ours. It is asked once for all
        queues that should have none, so that idle queues cost nothing each.
        """
        while True:
            await asyncio.sleep(pause_s)
            failed = False
            for manager in await self._suspects(hold_any):
                try:
                    await manager.adopt()
                except PyworkersError as error:
                    failed = True
                    health.failed(error)
            if not failed:
                health.ok()

    async def _suspects(self, hold_any: Callable[[list[str]], Awaitable[bool]]) -> list[Manager]:
        """The managers whose in-progress lists must be looked at."""
        idle, suspects = {}, []
        for name, manager in self.serving.items():
            manager.pool.replace_deaf()
            if manager.knows_jobs:
                suspects.append(manager)
            else:
                idle[name] = manager
        try:
            found = await hold_any(list(idle))
        except PyworkersError:
            found = True
        if found:
            return [*suspects, *idle.values()]
        for manager in idle.values():
            manager.has_no_strays()
        return suspects
