"""Queues: the managers of all groups, and the operations on all of them at once.

Runs in the master's event loop. A manager whose group a reload has dropped, or has given other queues, is
*stopping*: it takes no more jobs, but its workers still finish their jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping

from pyworkers import logs
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.keys import Keys
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.changes import Follow, UnchangedKeys
from pyworkers.server.fetching.fetcher import Fetcher
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health
from pyworkers.server.lease import LeaseDeadlines
from pyworkers.server.manager import Manager
from pyworkers.server.parts import Part, Tasks
from pyworkers.server.plan import Group
from pyworkers.server.pool.settling import Rules
from pyworkers.server.pool.worker import WorkerFacts, WorkerProcess
from pyworkers.server.running import Running
from pyworkers.server.waiting import POLL_S, ended, now
from pyworkers.store.jobs import hold_any

log = logs.get_logger()


class Queues:
    """The managers by the name of their group, in ``serving``; those that stop, in ``stopping``.

    ``make`` makes the manager of a group. A stopping one has ``stop_s``; then ``on_stopped`` is called.
    """

    def __init__(
        self,
        make: Callable[[Group, Spawner], Manager],
        tasks: Tasks,
        stop_s: float,
        on_stopped: Callable[[Manager], None],
    ) -> None:
        self._make = make
        self._tasks = tasks
        self._stop_s = stop_s
        self._on_stopped = on_stopped
        self.cancellations = Cancellations()
        self.serving: dict[str, Manager] = {}
        self.stopping: dict[Manager, asyncio.Task[None]] = {}
        self._emptying: set[Manager] = set()
        """Those that have stopped while Redis did not answer, and whose lists may hold jobs."""
        self._clock_offset_s = 0.0
        self._deadlines: LeaseDeadlines | None = None
        self._clearances: set[asyncio.Task[None]] = set()

    def stop_dropped(self, wanted: Mapping[str, Group]) -> None:
        """Stop the managers whose group is dropped or has other queues now."""
        for name, manager in list(self.serving.items()):
            group = wanted.get(name)
            if group is None or manager.queues != group.queues.keys() or manager.ordered != group.ordered:
                del self.serving[name]
                self.stopping[manager] = self._tasks.start(self._stop(manager), f"stop {name}")

    def apply(
        self, wanted: Mapping[str, Group], spawner: Spawner, rules: Rules, paused: Container[str]
    ) -> None:
        """Have managers for exactly these groups, all of this generation, once ``stopped``."""
        for name, group in wanted.items():
            if name in self.serving:
                self.serving[name].use(group, spawner, rules)
            else:
                manager = self.serving[name] = self._make(group, spawner)
                manager.pool.set_clock(self._clock_offset_s)
                if self._deadlines is not None:
                    manager.pool.set_lease(self._deadlines)
                for task in manager.start(paused):
                    self._tasks.watch(task)

    async def _stop(self, manager: Manager) -> None:
        try:
            await manager.stop(now() + self._stop_s)
        except PyworkersError as error:
            log.error("stop.failed", group=manager.name, error=error.message)
            self._tasks.start(self._empty(manager), f"empty {manager.name}")
        finally:
            del self.stopping[manager]
            self._on_stopped(manager)

    async def _empty(self, manager: Manager) -> None:
        """Give back what a failed stop has left, because no peer recovers the jobs of a server that lives.

        Nothing waits for it.
        """
        self._emptying.add(manager)
        try:
            await manager.empty(self._has_manager)
        finally:
            self._emptying.discard(manager)

    def _has_manager(self, queue: str) -> bool:
        return any(queue in manager.queues for manager in self.everyone())

    async def stopped(self, queues: Iterable[str] | None = None, timeout_s: float | None = None) -> None:
        """Wait until no manager of one of these queues is stopping (None: of any), at most ``timeout_s``.

        A queue has one manager at a time, because its managers would share one in-progress list: each would
        count the jobs of the other as strays, and give them back when it stops.
        """
        wanted = None if queues is None else frozenset(queues)
        await ended(
            [task for manager, task in self.stopping.items() if wanted is None or manager.queues & wanted],
            timeout_s,
        )

    def everyone(self) -> list[Manager]:
        """All managers that may have workers."""
        return [*self.serving.values(), *self.stopping]

    def _with_lists(self) -> list[Manager]:
        """All managers whose lists may hold jobs."""
        return [*self.everyone(), *self._emptying]

    async def all_started(self) -> None:
        """Wait until all workers have started. Raises PyworkersError if the workers of a group fail to."""
        while not all(manager.pool.all_started for manager in self.serving.values()):
            if failing := [name for name, manager in self.serving.items() if manager.pool.is_failing]:
                raise PyworkersError(f"no worker of the group {failing[0]} starts")
            await asyncio.sleep(POLL_S)

    def pids(self) -> list[int]:
        """All worker processes."""
        return [pid for manager in self.everyone() for pid in manager.pool.pids()]

    def running(self) -> list[Running]:
        """All jobs that workers run."""
        return [job for manager in self.everyone() for job in manager.pool.running()]

    def running_as(self, jid: str) -> tuple[WorkerProcess, int] | None:
        """The worker that runs the job with this id, and the number of the delivery; None if none runs it."""
        found = (manager.pool.running_as(jid) for manager in self.everyone())
        return next(filter(None, found), None)

    def make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes] | None:
        """Have a worker make the jobs of cron slots, if possible an idle one of the group of this queue.

        Returns the payload of its report, later; None if there are no workers.
        """
        tables = [manager.jobs for manager in self.serving.values() if queue in manager.queues]
        tables += [manager.jobs for manager in self.serving.values() if queue not in manager.queues]
        if not tables:
            return None
        return next((one for one in tables if one.idle), tables[0]).make_slots(queue, request)

    def workers(self) -> list[WorkerFacts]:
        """The worker processes of all groups."""
        return [worker for manager in self.everyone() for worker in manager.pool.workers()]

    def restarts(self) -> dict[str, int]:
        """The number of workers by group that ended unexpectedly, and were replaced."""
        return {name: manager.pool.restarts for name, manager in self.serving.items()}

    def failing(self) -> dict[str, str]:
        """The groups that have no worker and cannot start one, each with the reason."""
        found = {name: manager.pool.why_failing for name, manager in self.serving.items()}
        return {name: reason for name, reason in found.items() if reason}

    # Requests of operators

    def cancel_noted(self) -> None:
        """End the jobs that are cancelled."""
        for manager in self.everyone():
            manager.jobs.cancel_noted()

    async def set_paused(self, queues: frozenset[str]) -> None:
        """Fetch from all queues but these."""
        await asyncio.gather(*(manager.set_paused(queues) for manager in self.serving.values()))

    async def quiet(self) -> None:
        """Fetch nothing more until the end of the server."""
        await asyncio.gather(*(manager.quiet() for manager in self.serving.values()))

    async def fetch_no_more(self) -> None:
        """Fetch nothing more; the jobs that are here continue, also those that may not start yet."""
        await asyncio.gather(*(manager.fetch_no_more() for manager in self.serving.values()))

    @property
    def idle(self) -> bool:
        """True when no job runs and Redis has all outcomes."""
        return all(manager.idle for manager in self.everyone())

    # Events in Redis

    @property
    def ordered(self) -> set[Manager]:
        """The managers of ordered queues."""
        return {manager for manager in self.serving.values() if manager.ordered}

    def follows(self, keys: Keys, _identity: str) -> dict[str, Follow]:
        """The keys of the ordered queues, each with the function that takes its reply."""
        parts = [manager.follows(keys) for manager in self.ordered]
        return {name: follow for part in parts for name, follow in part.items()}

    def set_clock(self, offset_s: float) -> None:
        """Note for all workers how far Redis' clock is ahead of the clock of this machine."""
        self._clock_offset_s = offset_s
        for manager in self.everyone():
            manager.pool.set_clock(offset_s)

    def set_lease(self, deadlines: LeaseDeadlines) -> None:
        """Note for all workers when jobs that must not overlap are to end, unless the lease is renewed."""
        self._deadlines = deadlines
        for manager in self.everyone():
            manager.pool.set_lease(deadlines)

    async def connect_to(self, config: RedisConfig) -> None:
        """Use this Redis from now on, which has the same data."""
        await asyncio.gather(*(manager.fetcher.connect_to(config) for manager in self._with_lists()))

    def move_to(self, identity: str) -> None:
        """Give up all jobs, and continue under another identity."""
        for manager in self._with_lists():
            manager.move_to(identity)

    def wake(self) -> None:
        """Fetch, because Redis has registered this server."""
        for manager in self.everyone():
            manager.fetcher.wake()

    def clear_out(self, identity: str) -> None:
        """Give back the jobs that still arrive in the lists of an earlier incarnation."""
        task = self._tasks.start(self._clear_out(identity), "clearance")
        self._clearances.add(task)
        task.add_done_callback(self._clearances.discard)

    async def _clear_out(self, identity: str) -> None:
        await asyncio.gather(*(manager.fetcher.clear_out(identity) for manager in self.everyone()))

    async def cleared_out(self, timeout_s: float) -> None:
        """Wait until the lists of earlier incarnations are empty, at most ``timeout_s``."""
        await ended(self._clearances, timeout_s)

    def redis_returned(self) -> None:
        """Check the connections of all fetchers, after the first reply since an outage."""
        self._tasks.start(self._check_waits(), "waits")

    async def _check_waits(self) -> None:
        await asyncio.gather(*(manager.fetcher.check_wait() for manager in self.everyone()))


class Strays(Part):
    """Runs the jobs whose fetch had no reply; checks for them every ``pause_s`` seconds.

    One command checks the in-progress lists of all idle groups, so that none of them needs its own command;
    none is sent for lists that were empty and are ``unchanged``.
    """

    name = "strays"

    def __init__(
        self,
        queues: Queues,
        unchanged: UnchangedKeys,
        health: Health,
        pause_s: float,
    ) -> None:
        super().__init__(health)
        self._queues = queues
        self._unchanged = unchanged
        self._pause_s = pause_s

    async def look(self) -> float:
        """Adopt the strays of all groups; a list that cannot be read does not stop the others."""
        errors = []
        for fetcher in await self._to_check():
            try:
                await fetcher.adopt()
            except PyworkersError as error:
                errors.append(error)
        for manager in self._queues.serving.values():
            manager.fetcher.rest()
        if errors:
            raise errors[0]
        return self._pause_s

    def failed(self, _backoff_s: float) -> float:
        """Check again after the usual interval, because a check is cheap."""
        self._unchanged.forget()
        return self._pause_s

    async def _to_check(self) -> list[Fetcher]:
        """The fetchers whose in-progress lists must be read."""
        fetchers = [manager.fetcher for manager in self._queues.serving.values()]
        to_check = [fetcher for fetcher in fetchers if fetcher.knows_jobs]
        # The number of fetches before the check: it says nothing about later ones.
        idle = {one: one.fetches for one in fetchers if not one.knows_jobs and one.may_hold}
        if idle and await self._hold_any([name for fetcher in idle for name in fetcher.lists]):
            return [*to_check, *idle]
        for fetcher, fetches in idle.items():
            fetcher.is_empty(fetches)
        return to_check

    async def _hold_any(self, lists: list[str]) -> bool:
        """True if one of these in-progress lists holds a job, or on an error."""
        if self._unchanged.has(*lists):
            return False
        try:
            if not await self._unchanged.read(hold_any(lists), *lists):
                return False
        except PyworkersError:
            pass
        self._unchanged.forget()
        return True
