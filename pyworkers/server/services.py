"""Services: the parts of a server that speak to Redis, apart from its queues: built, told and ended together.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.protocol.outcome import Fate, Report
from pyworkers.server.changes import Changes
from pyworkers.server.cron import Cron
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat import Facts, Heartbeat
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.lease import Lease
from pyworkers.server.parts import Part, Tasks
from pyworkers.server.proc import Memory
from pyworkers.server.queues import Queues, Strays
from pyworkers.server.recovery import Recovery
from pyworkers.server.remote import Orders
from pyworkers.server.scheduler import Scheduler
from pyworkers.server.waiting import pause
from pyworkers.store.changes import ChangesStore
from pyworkers.store.cron import CronStore
from pyworkers.store.orders import OrdersStore
from pyworkers.store.presence import PresenceStore
from pyworkers.store.schedule import ScheduleStore

# How often in-progress lists are compared with what the workers have: cheap, and a stray waits for two looks.
_ADOPT_S, _ADOPTIONS_PER_LEASE = 5.0, 6
_GOODBYE_S = 3.0

log = logs.get_logger()


class Services:
    """``facts`` describe the server, ``words`` are the signals that may come through Redis."""

    def __init__(
        self,
        config: Config,
        incarnations: Incarnations,
        health: ServerHealth,
        queues: Queues,
        facts: Callable[[], Facts],
        words: Mapping[str, Callable[[], None]],
    ) -> None:
        self._incarnations = incarnations
        self._health = health
        self._cancellations = queues.cancellations
        self._served: list[str] = []
        redis, keys = incarnations.current.store.redis, incarnations.current.store.keys
        lease_s, identity = config.server.lease, incarnations.identity
        self.memory = Memory(time.monotonic)
        self.scheduler = Scheduler(
            ScheduleStore(redis, keys),
            identity,
            health,
            config.scheduler.poll_interval,
            config.retry.drain_goretry,
        )
        self.cron = Cron(CronStore(redis, keys), identity, health.of("cron"), random.Random())
        self.lease = Lease(incarnations, health.of("heartbeat"), lease_s, lambda: self._served)
        self.heartbeat = Heartbeat(
            PresenceStore(redis, keys, config.server.sidekiq6),
            health.of("presence"),
            facts,
            words,
            self.memory,
            self.lease.flush,
        )
        self.orders = Orders(
            OrdersStore(redis, keys),
            health.of("orders"),
            queues.cancellations,
            queues.set_paused,
            queues.cancel_noted,
            queues.running,
        )
        self.changes = Changes(
            ChangesStore(config.redis, keys),
            health.of("changes"),
            queues.redis_returned,
            [self.scheduler, self.orders, self.cron, self.heartbeat],
        )
        self.changes.follow(identity())
        adopt_s = min(_ADOPT_S, lease_s / _ADOPTIONS_PER_LEASE)
        self._parts: list[Part] = [
            self.lease,
            self.heartbeat,
            self.changes,
            self.orders,
            self.scheduler,
            Recovery(incarnations, health.of("recovery"), lease_s, self.lease.counters.interrupted),
            self.cron,
            Strays(queues, incarnations, health.of("strays"), adopt_s),
        ]

    def serve(self, queues: list[str]) -> None:
        """Claim these queues, too, from the next beat on."""
        self._served += [name for name in queues if name not in self._served]

    async def register(self, stop: asyncio.Event, fail_fast: bool) -> bool:
        """Wait for Redis to take the first beat: peers must know of an owner before it fetches.

        False when the server was told to stop meanwhile. Raises RedisUnavailableError if it shall fail fast.
        """
        health = self._health.of("heartbeat")
        while not stop.is_set():
            try:
                await self.lease.beat()
                health.ok()
                with suppress(StoreError):
                    await self.changes.read_due(time.monotonic())
                    await self.orders.turn()
                return True
            except PyworkersError as error:
                if fail_fast:
                    raise RedisUnavailableError(error.message) from error
                await pause(stop, health.failed(error))
        return False

    def start(self, tasks: Tasks) -> None:
        """Look again and again, until the tasks are cancelled."""
        for part in self._parts:
            tasks.start(part.run(), part.name)

    def settled(self, report: Report) -> None:
        """Take note of a job whose outcome Redis has taken."""
        self.lease.counters.add(report)
        if report.cancelled:
            self._cancellations.settle(report.cancelled)
        if report.outcome.fate in (Fate.RETRY, Fate.SNOOZE):
            self.scheduler.expect(report.outcome.at)

    def begin_anew(self) -> None:
        """Register and show the incarnation that has just begun."""
        self.changes.follow(self._incarnations.identity())
        self.lease.nudge()
        self.heartbeat.nudge()

    async def take_leave(self) -> None:
        """What Redis is told last; without it, all of this runs out by itself."""
        with suppress(PyworkersError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self.heartbeat.end()
                await self.lease.flush()
                await self.lease.flush_executions()
                if not await self._incarnations.current.store.leave(self._served):
                    log.error("jobs.left", hint="a peer takes over at once")
                await self.heartbeat.leave()
                await self.orders.forget()

    async def close(self) -> None:
        """Close the connections."""
        await self.changes.close()
        await self._incarnations.current.store.close()
