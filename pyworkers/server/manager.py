"""Manager: one group of queues with its pool, its fetcher and its states.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Container
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.server.changes import Follow
from pyworkers.server.fetching.fetcher import Fetcher, GroupCallbacks, no_queue
from pyworkers.server.fetching.idle import IdleQueues
from pyworkers.server.fetching.ordered import InPlace, OrderedFetcher
from pyworkers.server.fetching.source import Route, Source
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health
from pyworkers.server.plan import Group
from pyworkers.server.pool.cpus import ReservedCpu, Scheduling
from pyworkers.server.pool.gates import Gates
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.outbox import Outbox
from pyworkers.server.pool.pool import Pool
from pyworkers.server.pool.settling import Rules, Settling
from pyworkers.server.pool.worker import KILL_GRACE_S, Workers
from pyworkers.server.waiting import cancel, now, until
from pyworkers.store.jobs import InProgress, Waiter
from pyworkers.store.transport.link import Link

# The time for on_shutdown hooks, and the time until a killed process is reaped.
_GOODBYE_S, _KILLED_S = 5.0, 2.0
# The longest wait for a reply of Redis during a stop.
_ANSWER_S = 3.0
# The longest wait for the reply to the exchange under way, at the end of a stop.
_REPLY_S = 0.5
# Between two attempts to give jobs back after a stop.
_AGAIN_S = 1.0
# The interval in which an ordered queue is read if Redis announces no changes.
_POLL_S = 0.25

log = logs.get_logger()


class ManagerState(Enum):
    """``RUNNING ⇄ PAUSED``, and from both ``→ QUIET → STOPPED``. It is PAUSED while all its queues are.

    A manager that cannot start workers stays RUNNING; the log shows ``failing``.
    """

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    QUIET = "quiet"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Shared:
    """What all managers of a server use."""

    config: Config
    healths: Callable[[str], Health]
    """The health of a queue."""
    gates: Gates
    reserved: ReservedCpu
    idle: IdleQueues
    callbacks: GroupCallbacks
    rng: random.Random


class Manager:
    """Runs the jobs of one group."""

    def __init__(
        self, group: Group, inprogress: InProgress, spawner: Spawner, rules: Rules, shared: Shared
    ) -> None:
        self.name = group.name
        self.queues = frozenset(group.queues)
        self.ordered = group.ordered
        self.state = ManagerState.STARTING
        self.paused: frozenset[str] = frozenset()
        """The queues of the group that are paused."""
        self._group = group
        self._about: dict[str, object] = names_of(group)
        self._outbox = Outbox()
        self._in_place = InPlace(group.skip_dead) if group.ordered else None
        self._settling = Settling(
            self._outbox,
            rules,
            shared.callbacks.interrupted,
            shared.gates.suspects.settled,
            self._in_place.step if self._in_place else None,
        )
        workers = Workers()
        self.jobs = JobTable(workers, self._settling, shared.gates, self._outbox)
        scheduling = Scheduling(workers, shared.reserved)
        self.pool = Pool(group.name, spawner, self.jobs, scheduling, self._log_failing, group.idle_s)
        make = OrderedFetcher if group.ordered else Fetcher
        self.fetcher = make(group, inprogress, self._route(shared), shared.callbacks, shared.rng)
        # If the timeout is short, jobs get a third of it before the request to end.
        self._interrupt_s = min(KILL_GRACE_S, shared.config.server.shutdown_timeout * 2 / 3)
        self._fetching: asyncio.Task[None] | None = None
        self._pooling: asyncio.Task[None] | None = None
        self._stops_at_once = False
        self._interrupted = shared.callbacks.interrupted

    def _route(self, shared: Shared) -> Route:
        """What jobs of the group go through, from Redis to its workers and back."""
        config, changed = shared.config, self._outbox.changed.set
        return Route(
            [
                Source(queue, _waiter(config), shared.healths(queue), shared.idle, changed)
                for queue in self._group.queues
            ],
            shared.idle,
            Link(config.redis),
            self.jobs,
            self._outbox,
            self.pool.grow,
            self.pool.may_grow,
        )

    def start(self, paused: Container[str] = ()) -> list[asyncio.Task[None]]:
        """Start workers and fetch for them. The tasks end only by an error or when they are cancelled."""
        self.pool.resize(self._group.shares, self._group.mode, self._group.least)
        self.paused = self._of_ours(paused)
        self.fetcher.fetch(self.queues - self.paused)
        self._pooling = asyncio.create_task(self.pool.run(), name=f"pool {self.name}")
        self._fetching = asyncio.create_task(self.fetcher.run(), name=f"fetcher {self.name}")
        self._enter(self._state(), concurrency=self._group.concurrency)
        return [self._pooling, self._fetching]

    def use(self, group: Group, spawner: Spawner, rules: Rules) -> None:
        """Move to another generation, worker by worker. The group has the same queues."""
        self._about = names_of(group)
        self.fetcher.use(group)
        if self._in_place is not None:
            self._in_place.use(group.skip_dead)
        self._settling.decide_by(rules)
        self.pool.end_idle_after(group.idle_s)
        self.pool.use(spawner, group.shares, group.mode, group.least)

    async def set_paused(self, queues: Container[str]) -> None:
        """Pause these queues: fetch nothing; and resume the others. Running jobs continue."""
        paused, before = self._of_ours(queues), self.paused
        if self.state not in (ManagerState.RUNNING, ManagerState.PAUSED) or paused == before:
            return
        self.paused = paused
        was, self.state = self.state, self._state()
        self.fetcher.fetch(self.queues - paused)
        self._log_queues("queue.resumed", before - paused)
        if was is not self.state and self.state is ManagerState.RUNNING:
            self._enter(ManagerState.RUNNING)
        await self.fetcher.quiet()
        self.jobs.give_back_held(self.paused)
        # Logged only now, because until now the blocking move could still take a job.
        if self.paused == paused:
            self._log_queues("queue.paused", paused - before)
            if was is not self.state and self.state is ManagerState.PAUSED:
                self._enter(ManagerState.PAUSED)

    def _of_ours(self, queues: Container[str]) -> frozenset[str]:
        return frozenset(queue for queue in self.queues if queue in queues)

    def _state(self) -> ManagerState:
        """The state that the paused queues cause."""
        return ManagerState.PAUSED if self.paused == self.queues else ManagerState.RUNNING

    def _log_queues(self, event: str, queues: frozenset[str]) -> None:
        """Log the pause of queues in a group of several; of a single one it is the manager's state."""
        if len(self.queues) > 1:
            for queue in sorted(queues):
                log.info(event, **self._about, queue=queue)

    async def quiet(self) -> None:
        """Fetch nothing more; running jobs continue, and those that may not start yet are given back."""
        await self.fetch_no_more()
        self.jobs.give_back_held(self.queues)

    async def fetch_no_more(self) -> None:
        """Fetch nothing more; the jobs that are here continue."""
        fetched = self.state in (ManagerState.RUNNING, ManagerState.PAUSED)
        if fetched:
            self.state = ManagerState.QUIET
            self.fetcher.fetch(())
        await self.fetcher.quiet()
        if fetched and self.state is ManagerState.QUIET:
            # Logged only now, because until now the blocking moves could still take a job.
            self._enter(ManagerState.QUIET)

    @property
    def idle(self) -> bool:
        """True when no job runs and Redis has all outcomes."""
        return self.jobs.busy == 0 and not self._outbox

    def move_to(self, identity: str) -> None:
        """Give up all jobs, and continue under another identity."""
        self.pool.abandon()
        self.fetcher.move_to(identity)
        if self.state in (ManagerState.RUNNING, ManagerState.PAUSED):
            self.pool.replace_idle()

    async def stop(self, deadline: float) -> None:
        """Let running jobs end until ``deadline`` (loop time); give back the others; end the workers.

        Two seconds before ``deadline`` (less if the timeout is short), running jobs get a request to end.

        Raises PyworkersError when Redis is unreachable: the lease expires, and a peer takes over.
        """
        if self._pooling is not None and self._pooling.done():
            # By a defect, which stops the server: the ends of the workers count nevertheless.
            self._pooling = asyncio.create_task(self.pool.run())
        self.pool.stop()
        with suppress(RedisUnavailableError):
            await _in_time(self.quiet())
        await until(lambda: self.idle or self._stops_at_once, deadline - self._interrupt_s)
        self.jobs.interrupt()
        await until(lambda: self.idle or self._stops_at_once, deadline)
        await self._cancel_fetcher()
        try:
            await self._settle_up()
        finally:
            await self._dismiss_workers()
            await self.fetcher.close()
            self._enter(ManagerState.STOPPED)

    def stop_at_once(self) -> None:
        """Have a stop wait for no job: running ones are killed and given back."""
        self._stops_at_once = True

    async def _cancel_fetcher(self) -> None:
        if self._fetching is not None:
            # Without the reply, its outcomes would be sent again, and not be counted.
            with suppress(TimeoutError):
                async with asyncio.timeout(_REPLY_S):
                    await self.fetcher.end()
            await cancel([self._fetching])
        # A job that the blocking move took now would not be given back.
        await self.fetcher.cut_waits()

    async def _settle_up(self) -> None:
        """Dismiss the workers, and empty the in-progress lists: killed jobs when their processes have ended.

        The wait for them is ``_KILLED_S`` at most: a process that has not ended by then is in a system call,
        and runs no more code of its job.
        """
        self.pool.abandon()
        # At once: the pool would replace the killed workers.
        self.pool.close()
        await until(lambda: self.pool.abandoned == 0, now() + _KILLED_S)
        await _in_time(self._give_back())

    async def _give_back(self, except_from: Callable[[str], bool] = no_queue) -> None:
        await self.fetcher.flush()
        if jobs := await self.fetcher.give_back(except_from):
            log.warning("jobs.given_back", **self._about, jobs=jobs)
            self._interrupted(jobs)
        # Another manager may run the job whose outcome was settled just now: an ordered queue stays ours.
        if not any(map(except_from, self.queues)):
            await self.fetcher.release()

    async def empty(self, has_manager: Callable[[str], bool]) -> None:
        """Empty the in-progress lists after a stop in which Redis did not answer, once it does.

        Not the list of a queue that has another manager by then: it runs the jobs that it finds there.
        """
        try:
            while True:
                await asyncio.sleep(_AGAIN_S)
                with suppress(PyworkersError):
                    await self._give_back(has_manager)
                    return
        finally:
            await self.fetcher.close()

    async def _dismiss_workers(self) -> None:
        if not await until(lambda: self.pool.empty, now() + _GOODBYE_S):
            self.pool.kill(_GOODBYE_S)
            await until(lambda: self.pool.empty, now() + _KILLED_S)
        self.pool.end()
        if self._pooling is not None:
            await cancel([self._pooling])

    def follows(self, keys: Keys) -> dict[str, Follow]:
        """The keys of an ordered queue, each with the function that takes its reply."""
        looks = self.fetcher.follows(keys)
        return {key: Follow(kind, take, _POLL_S) for key, (kind, take) in looks.items()}

    def describe(self) -> dict[str, object]:
        """The state, as SIGTTIN logs it."""
        return {
            **self._about,
            "paused": sorted(self.paused),
            "state": self.state.value,
            "workers": self.pool.pids(),
            "busy": self.jobs.busy,
            "unsettled": self._outbox.outcomes,
        }

    def _log_failing(self, failing: bool) -> None:
        if failing:
            log.error("manager.state", **self._about, state="failing")
        else:
            log.info("manager.state", **self._about, state=self.state.value)

    def _enter(self, state: ManagerState, **about: object) -> None:
        self.state = state
        log.info("manager.state", **self._about, state=state.value, **about)


def names_of(group: Group) -> dict[str, object]:
    """The log fields that name a group: its queue, if that is in no declared group."""
    if list(group.queues) == [group.name]:
        return {"queue": group.name}
    return {"group": group.name, "queues": list(group.queues)}


def _waiter(config: Config) -> Waiter:
    """A connection for the blocking moves of one queue."""
    return Waiter(config.redis, config.server.lease)


async def _in_time(work: Awaitable[None]) -> None:
    """Do this part of a stop within ``_ANSWER_S``, because a supervisor kills a process that stops slowly.

    Raises RedisUnavailableError after that time.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            await work
    except TimeoutError as error:
        raise RedisUnavailableError("Redis did not answer in the time that a stop has") from error
