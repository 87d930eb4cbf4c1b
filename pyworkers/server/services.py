"""Services: makes, starts and ends the parts of a server that use Redis, except for its queues.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
    has the stack of a job written; ``leave`` opens the connections of the store and the queues again.
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
    leave: Callable[[], Awaitable[None]]


class Services:
    """Makes the parts, starts them, and ends them in order."""

    def __init__(self, server: ServerParts) -> None:
        self._server = server
        config, store, queues, health = server.config, server.store, server.queues, server.health.of
        identity, lease_s = server.incarnations.identity, config.server.lease
        self.counters = Counters()
        self._writer = CounterWriter(store, self.counters)
        self.lease = Lease(store, server.incarnations, health(Lease.name), lease_s, self._renewed)
        shown = Shown(server.facts, server.memory, config.server.sidekiq6)
        reactions = Reactions(server.words, self._writer.write_counts, queues.set_clock, server.ask_stack)
        self.heartbeat = Heartbeat(store, health(Heartbeat.name), shown, reactions)
        self.remote = Remote(store, health(Remote.name), queues)
        interval_s, drain_goretry = config.scheduler.poll_interval, config.retry.drain_goretry
        self.scheduler = Scheduler(store, identity, server.health, interval_s, drain_goretry)
        self.cron = Cron(store, identity, health(Cron.name), random.Random(), server.make_slots)
        followers: list[Follower] = [self.scheduler, self.remote, self.cron, self.heartbeat, queues]
        self.changes = Changes(
            config.redis, store.keys, health(Changes.name), queues.redis_returned, followers, server.leave
        )
        self.changes.follow(identity())
        self.suspects = Suspects(store, identity, health(Suspects.name), self.counters.suspected)
        self.asks = Asks(store, identity, health(Asks.name), self.scheduler.expect)
        # If an announcement is lost, a new server is missing for this long at most: its first lease.
        registrations = Registrations(store, server.incarnations, self.changes.unchanged(lease_s))
        self.recovery = Recovery(store, registrations, health(Recovery.name), lease_s, self._recovered)
        self._parts: list[Part] = [
            self.lease,
            self.heartbeat,
            self.changes,
            self.remote,
            self.scheduler,
            self.recovery,
            self.cron,
            self.suspects,
            self.asks,
            *self._make_others(),
        ]

    def _make_others(self) -> Iterator[Part]:
        """The parts that no other part uses."""
        server, turn, health = self._server, self.recovery.turn, self._server.health.of
        store, lease_s = server.store, server.config.server.lease
        unchanged = self.changes.unchanged(lease_s)
        yield Strays(
            server.queues, unchanged, health(Strays.name), min(_ADOPT_S, lease_s / _ADOPTIONS_PER_LEASE)
        )
        yield Sweep(store, turn, health(Sweep.name), min(_SWEEP_S, lease_s * _LEASES_PER_SWEEP))
        yield GaugeWriter(store, turn, health(GaugeWriter.name), lambda: self.lease.queues)
        if contexts := store.tls:
            yield Certificates(contexts, health(Certificates.name))

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

    def _recovered(self, jobs: int) -> None:
        self.counters.recovered(jobs)
        self.asks.sweep_soon()

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
