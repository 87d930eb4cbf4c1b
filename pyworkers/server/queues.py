"""Queues: the managers of all queues, and the operations on all of them at once.

Runs in the master's event loop. A queue that a reload has dropped is *parting*: it takes no more jobs, but
its workers still finish their jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.manager import Manager
from pyworkers.server.parts import Part, Tasks
from pyworkers.server.plan import Group
from pyworkers.server.pool.losses import Losses
from pyworkers.server.pool.running import Running
from pyworkers.server.waiting import ended, now
from pyworkers.store.jobs import hold_any
from pyworkers.store.store import Store

log = logs.get_logger()


class Queues:
    """The managers by queue, in ``serving`` and ``parting``.

    ``make`` makes the manager of a queue. A parting one has ``stop_s`` to stop; then ``on_parted`` is called.
    """

    def __init__(
        self,
        make: Callable[[str, Spawner], Manager],
        tasks: Tasks,
        stop_s: float,
        on_parted: Callable[[Manager], None],
    ) -> None:
        self._make = make
        self._tasks = tasks
        self._stop_s = stop_s
        self._on_parted = on_parted
        self.cancellations = Cancellations()
        self.serving: dict[str, Manager] = {}
        self.parting: dict[str, Manager] = {}
        self._partings: dict[str, asyncio.Task[None]] = {}
        self._clearances: set[asyncio.Task[None]] = set()

    def apply(
        self,
        wanted: Mapping[str, Group],
        spawner: Spawner,
        losses: Losses,
        paused: Container[str],
    ) -> None:
        """Have managers for exactly these groups, all of this generation."""
        for name in self.serving.keys() - wanted.keys():
            self.parting[name] = self.serving.pop(name)
            self._partings[name] = self._tasks.start(self._part_with(name), f"stop {name}")
        for name, group in wanted.items():
            if name in self.serving:
                self.serving[name].use(spawner, losses, group.concurrency)
            else:
                manager = self.serving[name] = self._make(name, spawner)
                self._tasks.watch(manager.start(group.concurrency, name in paused))

    async def _part_with(self, queue: str) -> None:
        try:
            await self.parting[queue].stop(now() + self._stop_s)
        except PyworkersError as error:
            log.error("stop.failed", queue=queue, error=error.message)
        finally:
            del self._partings[queue]
            self._on_parted(self.parting.pop(queue))

    async def parted(self, queues: Container[str], timeout_s: float | None = None) -> None:
        """Wait until none of these queues is parting, at most ``timeout_s``."""
        await ended([task for name, task in self._partings.items() if name in queues], timeout_s)

    def everyone(self) -> list[Manager]:
        """All managers that may have workers."""
        return [*self.serving.values(), *self.parting.values()]

    def pids(self) -> list[int]:
        """All worker processes."""
        return [pid for manager in self.everyone() for pid in manager.pool.pids()]

    def running(self) -> list[Running]:
        """All jobs that workers run."""
        return [job for manager in self.everyone() for job in manager.pool.running()]

    # Requests of operators

    def cancel_noted(self) -> None:
        """End the jobs that are cancelled."""
        for manager in self.everyone():
            manager.requests.cancel_noted()

    async def set_paused(self, queues: frozenset[str]) -> None:
        """Fetch from all queues but these."""
        await asyncio.gather(*(m.set_paused(name in queues) for name, m in self.serving.items()))

    async def quiet(self) -> None:
        """Fetch nothing more until the end of the server."""
        await asyncio.gather(*(manager.quiet() for manager in self.serving.values()))

    # Events in Redis

    def leave_primary(self) -> None:
        """Drop the connections: another server is the primary."""
        log.warning("redis.failover")
        for manager in self.everyone():
            manager.drop_connection()

    def move_to(self, identity: str) -> None:
        """Give up all jobs, and continue under another identity."""
        for manager in self.everyone():
            manager.move_to(identity)

    def clear_out(self, identity: str) -> None:
        """Give back the jobs that still arrive in the lists of an earlier incarnation."""
        task = self._tasks.start(self._clear_out(identity), "clearance")
        self._clearances.add(task)
        task.add_done_callback(self._clearances.discard)

    async def _clear_out(self, identity: str) -> None:
        await asyncio.gather(*(manager.clear_out(identity) for manager in self.everyone()))

    async def cleared_out(self, timeout_s: float) -> None:
        """Wait until the lists of earlier incarnations are empty, at most ``timeout_s``."""
        await ended(self._clearances, timeout_s)

    def redis_returned(self) -> None:
        """Check the connections of all fetchers, after the first reply since an outage."""
        self._tasks.start(self._check_waits(), "waits")

    async def _check_waits(self) -> None:
        await asyncio.gather(*(manager.check_wait() for manager in self.everyone()))


class Strays(Part):
    """Runs the jobs whose fetch had no reply; checks for them every ``pause_s`` seconds.

    One command checks the in-progress lists of all idle queues, so that none of them needs its own command.
    """

    name = "strays"

    def __init__(
        self,
        queues: Queues,
        store: Store,
        incarnations: Incarnations,
        health: Health,
        pause_s: float,
    ) -> None:
        super().__init__(health)
        self._queues = queues
        self._store = store
        self._incarnations = incarnations
        self._pause_s = pause_s

    async def look(self) -> float:
        """Adopt the strays of all queues; a list that cannot be read does not stop the others."""
        errors = []
        for manager in await self._to_check():
            try:
                await manager.adopt()
            except PyworkersError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return self._pause_s

    def failed(self, _backoff_s: float) -> float:
        """Check again after the usual interval, because a check is cheap."""
        return self._pause_s

    async def _to_check(self) -> list[Manager]:
        """The managers whose in-progress lists must be read."""
        idle, to_check = {}, []
        for name, manager in self._queues.serving.items():
            if manager.knows_jobs:
                to_check.append(manager)
            else:
                idle[name] = manager
        if idle and await self._hold_any(list(idle)):
            return [*to_check, *idle.values()]
        for manager in idle.values():
            manager.has_no_strays()
        return to_check

    async def _hold_any(self, queues: list[str]) -> bool:
        """True if this server's in-progress list of one of these queues holds a job, or on an error."""
        identity = self._incarnations.identity()
        try:
            return await self._store.arun(hold_any(self._store.keys, queues, identity))
        except PyworkersError:
            return True
