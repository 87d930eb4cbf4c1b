"""Services: makes, starts and ends the parts of a server that use Redis, except for its queues.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.protocol.outcome import DONE, Fate, Report
from pyworkers.server.certificates import Certificates
from pyworkers.server.changes import Changes, Follower
from pyworkers.server.counters import Counters, CounterWriter
from pyworkers.server.gauges import GaugeWriter
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat.beats import Heartbeat, Reactions, Shown
from pyworkers.server.heartbeat.facts import Facts
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.lease import Lease, LeaseDeadlines
from pyworkers.server.parts import Part, Tasks
from pyworkers.server.pool.gates import Asks, Suspects
from pyworkers.server.proc import Memory
from pyworkers.server.queues import Queues, Strays
from pyworkers.server.recovery import Recovery, Registrations
from pyworkers.server.remote import Remote
from pyworkers.server.scheduler import Scheduler
from pyworkers.server.slots.cron import Cron
from pyworkers.server.slots.questions import MakeSlots
from pyworkers.server.sweep import Sweep
from pyworkers.server.waiting import pause
from pyworkers.store import leases
from pyworkers.store.store import Store

# The interval between two comparisons of the in-progress lists with the jobs of the workers. The check is
# cheap, and a stray job is adopted only at the second check.
_ADOPT_S, _ADOPTIONS_PER_LEASE = 5.0, 6
# Two sweeps in succession must find a job missing: this and the time that they take is within two minutes.
_SWEEP_S, _LEASES_PER_SWEEP = 50.0, 2
_GOODBYE_S = 3.0

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class ServerParts:
    """The objects that the parts of one server share.

    ``facts`` describe it; ``words`` are the signals that may come through Redis, each with its function;
    ``memory`` measures its processes; ``make_slots`` has a worker make the jobs of cron slots; ``ask_stack``
    has the stack of a job written.
    """

    config: Config
    store: Store
    incarnations: Incarnations
    health: ServerHealth
    queues: Queues
    facts: Callable[[], Facts]
    words: Mapping[str, Callable[[], None]]
    memory: Memory
    make_slots: MakeSlots
    ask_stack: Callable[[str], None]


class Services:
    """Makes the parts, starts them, and ends them in order."""

    def __init__(self, server: ServerParts) -> None:
        self._server = server
        self.counters = Counters()
        self._writer = CounterWriter(server.store, self.counters)
        self.lease = self._make_lease()
        self.heartbeat = self._make_heartbeat()
        self.remote = self._make_remote()
        self.scheduler = self._make_scheduler()
        self.cron = self._make_cron()
        self.changes = self._make_changes()
        self.suspects = self._make_suspects()
        self.asks = self._make_asks()
        self.recovery = self._make_recovery()
        self._parts: list[Part] = [
            self.lease,
            self.heartbeat,
            self.changes,
            self.remote,
            self.scheduler,
            self.recovery,
            self.cron,
            self._make_strays(),
            self.suspects,
            self.asks,
            self._make_sweep(),
            self._make_gauges(),
            *self._make_certificates(),
        ]

    def _make_lease(self) -> Lease:
        server, lease_s = self._server, self._server.config.server.lease
        health = server.health.of(Lease.name)
        return Lease(server.store, server.incarnations, health, lease_s, self._renewed)

    async def _renewed(self, is_new: bool, deadlines: LeaseDeadlines) -> None:
        self._server.queues.set_lease(deadlines)
        if is_new:
            self._server.queues.wake()
        health = self._server.health.of("counters")
        try:
            await self._writer.write()
            health.ok()
        except StoreError as error:
            # The lease is renewed nevertheless. The next renewal tries again.
            health.failed(error)

    def _make_heartbeat(self) -> Heartbeat:
        server = self._server
        return Heartbeat(
            server.store,
            server.health.of(Heartbeat.name),
            Shown(server.facts, server.memory, server.config.server.sidekiq6),
            Reactions(server.words, self._writer.write_counts, server.queues.set_clock, server.ask_stack),
        )

    def _make_remote(self) -> Remote:
        server = self._server
        return Remote(server.store, server.health.of(Remote.name), server.queues)

    def _make_scheduler(self) -> Scheduler:
        server, config = self._server, self._server.config
        return Scheduler(
            server.store,
            server.incarnations.identity,
            server.health,
            config.scheduler.poll_interval,
            config.retry.drain_goretry,
        )

    def _make_cron(self) -> Cron:
        server = self._server
        health = server.health.of(Cron.name)
        return Cron(server.store, server.incarnations.identity, health, random.Random(), server.make_slots)

    def _make_changes(self) -> Changes:
        server = self._server
        followers: list[Follower] = [self.scheduler, self.remote, self.cron, self.heartbeat, server.queues]
        changes = Changes(
            server.config.redis,
            server.store.keys,
            server.health.of(Changes.name),
            server.queues.redis_returned,
            followers,
        )
        changes.follow(server.incarnations.identity())
        return changes

    def _make_recovery(self) -> Recovery:
        server, lease_s = self._server, self._server.config.server.lease
        health = server.health.of(Recovery.name)
        # If an announcement is lost, a new server is missing for this long at most: its first lease.
        unchanged = self.changes.unchanged(lease_s)
        registrations = Registrations(server.store, server.incarnations, unchanged)
        return Recovery(server.store, registrations, health, lease_s, self._recovered)

    def _recovered(self, jobs: int) -> None:
        self.counters.recovered(jobs)
        self.asks.sweep_soon()

    def _make_suspects(self) -> Suspects:
        server = self._server
        health = server.health.of(Suspects.name)
        return Suspects(server.store, server.incarnations.identity, health, self.counters.suspected)

    def _make_asks(self) -> Asks:
        server = self._server
        health = server.health.of(Asks.name)
        return Asks(server.store, server.incarnations.identity, health, self.scheduler.expect)

    def _make_strays(self) -> Strays:
        server = self._server
        pause_s = min(_ADOPT_S, server.config.server.lease / _ADOPTIONS_PER_LEASE)
        health = server.health.of(Strays.name)
        return Strays(server.queues, self.changes.unchanged(server.config.server.lease), health, pause_s)

    def _make_sweep(self) -> Sweep:
        server = self._server
        pause_s = min(_SWEEP_S, server.config.server.lease * _LEASES_PER_SWEEP)
        return Sweep(server.store, self.recovery.turn, server.health.of(Sweep.name), pause_s)

    def _make_gauges(self) -> GaugeWriter:
        server = self._server
        health = server.health.of(GaugeWriter.name)
        return GaugeWriter(server.store, self.recovery.turn, health, lambda: self.lease.queues)

    def _make_certificates(self) -> Iterator[Certificates]:
        if contexts := self._server.store.tls:
            yield Certificates(contexts, self._server.health.of(Certificates.name))

    async def register(self, stop: asyncio.Event, fail_fast: bool) -> bool:
        """Wait until Redis has registered this server: peers must know a server before it fetches.

        False if ``stop`` is set meanwhile. With ``fail_fast``, raises RedisUnavailableError at the first
        failure.
        """
        health = self._server.health.of(Lease.name)
        while not stop.is_set():
            try:
                await self.lease.renew()
                health.ok()
                with suppress(StoreError):
                    # Before the first job: it may have expired by Redis' clock alone.
                    await self.heartbeat.set_clock()
                    await self.changes.read_due(time.monotonic())
                    await self.remote.pass_on()
                return True
            except PyworkersError as error:
                if fail_fast:
                    raise RedisUnavailableError(error.message, hint=error.hint, code=error.code) from error
                await pause(stop, health.failed(error))
        return False

    def start(self, tasks: Tasks) -> None:
        """Run all parts, until the tasks are cancelled."""
        for part in self._parts:
            tasks.start(part.run(), part.name)

    def settled(self, queue: str, report: Report, jobs: int) -> None:
        """Note that Redis has this report of a number of jobs of a queue."""
        self.counters.add(queue, report, jobs)
        outcome = report.outcome
        if (outcome is DONE or outcome.member is not None) and not report.cancelled:
            return
        if report.cancelled:
            self._server.queues.cancellations.settle(report.cancelled)
        if outcome.fate in (Fate.RETRY, Fate.SNOOZE):
            self.scheduler.expect(outcome.at)

    def follow_queues(self) -> None:
        """Read the keys of the ordered queues that are served now."""
        self.changes.follow(self._server.incarnations.identity())

    def begin_anew(self) -> None:
        """Register and show the incarnation that has just begun."""
        self.changes.follow(self._server.incarnations.identity())
        self.lease.nudge()
        self.heartbeat.nudge()

    async def sign_off(self) -> None:
        """Write the last counters, and deregister; if this fails, the registration expires by itself."""
        with suppress(PyworkersError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self.heartbeat.end()
                # A renewal after the deregistration would register this server again, for a lease.
                await self.lease.end()
                await self.recovery.turn.end()
                await self._writer.write()
                await self._deregister()
                await self.heartbeat.deregister()
                await self.remote.forget()

    async def _deregister(self) -> None:
        store, identity = self._server.store, self._server.incarnations.identity()
        if not await store.arun(leases.deregister(store.keys, identity, self.lease.queues)):
            log.error("jobs.left", hint="another server takes over at once")

    async def close(self) -> None:
        """Close the connections of the parts; the caller closes the store."""
        await self.changes.close()
