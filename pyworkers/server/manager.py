"""Manager: one queue with its pool, its fetcher and its states.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from enum import Enum

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.errors import RedisUnavailableError
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.fetcher import Fetcher, Listeners
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health
from pyworkers.server.outbox import Outbox
from pyworkers.server.pool.crew import Crew
from pyworkers.server.pool.deliveries import Deliveries
from pyworkers.server.pool.endings import KILL_GRACE_S, Endings
from pyworkers.server.pool.losses import Losses
from pyworkers.server.pool.pool import Pool
from pyworkers.server.pool.requests import Requests
from pyworkers.server.waiting import cancel, now, until
from pyworkers.store.jobs import InProgress
from pyworkers.store.transport.link import Link
from pyworkers.store.waiter import Waiter

# The time for on_shutdown hooks, and the time until a killed process is reaped.
_GOODBYE_S, _KILLED_S = 5.0, 2.0
# The longest wait for a reply of Redis during a stop.
_ANSWER_S = 3.0

log = logs.get_logger()


class ManagerState(Enum):
    """``RUNNING ⇄ PAUSED``, and from both ``→ QUIET → STOPPED``.

    A manager that cannot start workers stays RUNNING; the log shows ``failing``.
    """

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    QUIET = "quiet"
    STOPPED = "stopped"


class Manager:
    """Runs the jobs of one queue."""

    def __init__(
        self,
        inprogress: InProgress,
        config: Config,
        health: Health,
        spawner: Spawner,
        losses: Losses,
        cancellations: Cancellations,
        listeners: Listeners,
    ) -> None:
        queue = self.queue = inprogress.queues[0]
        self.state = ManagerState.STARTING
        self._outbox = Outbox()
        self._endings = Endings(self._outbox.settle, losses)
        crew = Crew()
        self.deliveries = Deliveries(
            crew, self._endings, cancellations, self._outbox.changed.set, lambda: self.pool.run_suspects()
        )
        self.pool = Pool(queue, spawner, crew, self.deliveries, self._failing)
        self.requests = Requests(crew, self.deliveries, cancellations)
        link, waiter = Link(config.redis), Waiter(config.redis, config.server.lease)
        self._fetcher = Fetcher(inprogress, link, waiter, health, self._outbox, self.deliveries, listeners)
        # If the timeout is short, jobs get a third of it before the request to end.
        self._interrupt_s = min(KILL_GRACE_S, config.server.shutdown_timeout * 2 / 3)
        self._task: asyncio.Task[None] | None = None
        self.given_back = 0
        """The number of jobs that a stop has given back."""

    def start(self, concurrency: int, paused: bool = False) -> asyncio.Task[None]:
        """Start workers and fetch for them. The task ends only by an error or when it is cancelled."""
        self.pool.resize([1] * concurrency)
        if not paused:
            self._fetcher.fetch()
        self._task = asyncio.create_task(self._fetcher.run(), name=f"fetcher {self.queue}")
        self._enter(ManagerState.PAUSED if paused else ManagerState.RUNNING, concurrency=concurrency)
        return self._task

    def use(self, spawner: Spawner, losses: Losses, concurrency: int) -> None:
        """Move to another generation, worker by worker."""
        self._endings.decide_by(losses)
        self.pool.use(spawner, [1] * concurrency)

    async def set_paused(self, paused: bool) -> None:
        """Pause the queue: fetch nothing; or resume it. Running jobs continue."""
        if paused and self.state is ManagerState.RUNNING:
            await self._fetch_no_more(ManagerState.PAUSED)
        elif not paused and self.state is ManagerState.PAUSED:
            self._fetcher.fetch()
            self._enter(ManagerState.RUNNING)

    async def quiet(self) -> None:
        """Fetch nothing more; running jobs continue."""
        if self.state in (ManagerState.RUNNING, ManagerState.PAUSED):
            await self._fetch_no_more(ManagerState.QUIET)
        else:
            await self._fetcher.quiet()

    async def _fetch_no_more(self, state: ManagerState) -> None:
        self.state = state
        await self._fetcher.quiet()
        if self.state is state:
            # Logged only now, because until now the blocking move could still take a job.
            self._enter(state)

    @property
    def idle(self) -> bool:
        """True when no job runs and Redis has all outcomes."""
        return self.deliveries.busy == 0 and not self._outbox

    @property
    def knows_jobs(self) -> bool:
        """True if this server's in-progress list of the queue should hold jobs."""
        return self._fetcher.knows_jobs

    async def adopt(self) -> None:
        """Run the jobs whose fetch had no reply. Raises PyworkersError."""
        await self._fetcher.adopt()

    def has_no_strays(self) -> None:
        """Note that this server's in-progress list of the queue is empty."""
        self._fetcher.has_no_strays()

    async def check_wait(self) -> None:
        """After an outage, replace the connection of the blocking move if it no longer works."""
        await self._fetcher.check_wait()

    def move_to(self, identity: str) -> None:
        """Give up all jobs, and continue under another identity."""
        self.pool.abandon()
        self._fetcher.move_to(identity)
        if self.state in (ManagerState.RUNNING, ManagerState.PAUSED):
            self.pool.replace_idle()

    def drop_connection(self) -> None:
        """Drop the connections: another Redis server is the primary."""
        self._fetcher.drop_connection()

    async def clear_out(self, identity: str) -> None:
        """Give back the jobs that arrived late in the list of an earlier incarnation."""
        await self._fetcher.clear_out(identity)

    async def stop(self, deadline: float) -> None:
        """Let running jobs end until ``deadline`` (loop time); give back the others; end the workers.

        Two seconds before ``deadline`` (less if the timeout is short), running jobs get a request to end.

        Raises PyworkersError when Redis is unreachable: the lease expires, and a peer takes over.
        """
        with suppress(RedisUnavailableError):
            await _in_time(self.quiet())
        await until(lambda: self.idle, deadline - self._interrupt_s)
        self.requests.interrupt()
        await until(lambda: self.idle, deadline)
        await self._cancel_fetcher()
        try:
            await self._settle_up()
        finally:
            await self._dismiss_workers()
            await self._fetcher.close()
            self._enter(ManagerState.STOPPED)

    async def _cancel_fetcher(self) -> None:
        if self._task is not None:
            await cancel([self._task])
        # A job that the blocking move took now would not be given back.
        await self._fetcher.end_wait()

    async def _settle_up(self) -> None:
        """Empty the in-progress list. Killed jobs are given back when their processes have ended.

        The wait for them is ``_KILLED_S`` at most: a process that has not ended by then is in a system call,
        and runs no more code of its job.
        """
        self.pool.abandon()
        await until(lambda: self.pool.abandoned == 0, now() + _KILLED_S)
        await _in_time(self._give_back())
        if self.given_back:
            log.warning("jobs.given_back", queue=self.queue, jobs=self.given_back)

    async def _give_back(self) -> None:
        await self._fetcher.flush()
        self.given_back = await self._fetcher.give_back()

    async def _dismiss_workers(self) -> None:
        self.pool.close()
        if not await until(lambda: self.pool.empty, now() + _GOODBYE_S):
            self.pool.kill()
            await until(lambda: self.pool.empty, now() + _KILLED_S)
        self.pool.end()

    def describe(self) -> dict[str, object]:
        """The state, as SIGTTIN logs it."""
        return {
            "queue": self.queue,
            "state": self.state.value,
            "workers": self.pool.pids(),
            "busy": self.deliveries.busy,
            "unsettled": len(self._outbox),
        }

    def _failing(self, failing: bool) -> None:
        log.error("manager.state", queue=self.queue, state="failing" if failing else self.state.value)

    def _enter(self, state: ManagerState, **about: object) -> None:
        self.state = state
        log.info("manager.state", queue=self.queue, state=state.value, **about)


async def _in_time(work: Awaitable[None]) -> None:
    """Do this part of a stop within ``_ANSWER_S``, because a supervisor kills a process that stops slowly.

    Raises RedisUnavailableError after that time.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            await work
    except TimeoutError as error:
        raise RedisUnavailableError("Redis did not answer in the time that a stop has") from error
