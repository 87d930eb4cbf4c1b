"""Beats: registers this server for Sidekiq's Web UI and API, and executes their signals.

Runs in the master's event loop, apart from the lease: a failure here loses no job. One server is one process
for Sidekiq, and its workers are the threads, because each additional process lengthens the interval in which
Sidekiq polls for scheduled jobs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.protocol import envelope
from pyworkers.protocol.keys import WATCHED_TTL_S, Keys
from pyworkers.protocol.stacks import WORD as ASK_STACK
from pyworkers.protocol.wire import NOTED_S
from pyworkers.server.changes import Follow
from pyworkers.server.health import Health
from pyworkers.server.heartbeat.facts import (
    Facts,
    declared,
    described,
    featured,
    info,
    listed_workers,
    signed,
    work,
)
from pyworkers.server.parts import Part
from pyworkers.server.proc import Memory
from pyworkers.server.running import Payloads
from pyworkers.store import heartbeat
from pyworkers.store.measures.gauges import note_busy
from pyworkers.store.processes.cleanup import CLEANUP_S, cleanup
from pyworkers.store.store import Store

# Sidekiq beats every 5 s up to version 6, and every 10 s since.
BEAT_S = 5.0
# An unchanged heartbeat is renewed this often; readers count a server as dead after a minute without one.
_SAME_S = 15.0
# The interval while a viewer is active.
_WATCHED_S = 1.0
# How often the clock of Redis is compared with the clock of this machine.
_CLOCK_S = 60.0
# How often the number of running jobs is noted for the charts if it stays the same.
_BUSY_S = 60.0

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class ViewerWatch:
    """A viewer's request for fresh numbers, and the time of its end (monotonic seconds)."""

    name: bytes
    until: float = -math.inf


@dataclass(frozen=True, slots=True)
class Shown:
    """What the beats show of this server; ``sidekiq6``: to the tools of Sidekiq 6, too."""

    facts: Callable[[], Facts]
    memory: Memory
    sidekiq6: bool


@dataclass(frozen=True, slots=True)
class Reactions:
    """What the beats have the server do."""

    words: Mapping[str, Callable[[], None]]
    """The signals that may come through Redis, each with its function."""
    flush: Callable[[], Awaitable[None]]
    """Writes the counters, before a beat that a viewer waits for."""
    on_clock: Callable[[float], None]
    """Called with the seconds by which Redis' clock is ahead."""
    ask_stack: Callable[[str], None]
    """Has the stack of the job with this id written."""


class Heartbeat(Part):
    """Sends the beats."""

    name = "heartbeat"
    eager = True

    def __init__(self, store: Store, health: Health, shown: Shown, reactions: Reactions) -> None:
        super().__init__(health)
        self._store = store
        self._facts = shown.facts
        self._memory = shown.memory
        self._sidekiq6 = shown.sidekiq6
        self._reactions = reactions
        self._payloads = Payloads()
        self._started_at = time.time()
        self._pruned = -float(CLEANUP_S)
        self._noted = -NOTED_S
        self._busy = (0, 0)
        self._busy_noted = -math.inf
        self._shown_as = ""
        self._shown: object = None
        self._shown_at = -math.inf
        self._had_jobs = True
        self._signalled = True
        self._watch = ViewerWatch(b"0")
        self._clock_offset_s = 0.0
        self._clock_read = -math.inf
        self._rtt_us = 0

    @property
    def _watched(self) -> bool:
        return time.monotonic() < self._watch.until

    async def look(self) -> float:
        """Beat if there is a change, or if the last beat was long ago."""
        await self._beat_if_changed()
        return _WATCHED_S if self._watched else BEAT_S

    async def _beat_if_changed(self) -> None:
        # Read before the counters are written: a later request is answered by the next beat.
        watch = self._watch
        if self._watched:
            await self._reactions.flush()
        elif not self._nudged and self._is_known():
            return
        await self.beat(watch)
        await self._note_busy()
        await self._note_wire()
        await self._prune()

    def _is_known(self) -> bool:
        return time.monotonic() - self._shown_at < _SAME_S and self._shown == self._state()

    def _state(self) -> object:
        """The facts whose change causes a beat; without memory, which always changes."""
        facts = self._facts()
        jobs = [(job.pid, job.number) for job in facts.running]
        return facts.identity, dict(facts.groups), jobs, facts.quiet, facts.stops_at, facts.failing

    def follows(self, keys: Keys, identity: str) -> dict[str, Follow]:
        """The keys to read, each with the function that takes its reply."""
        return {
            keys.signals(identity): Follow("length", self.see_signals),
            keys.watched: Follow("text", self.see_watch),
        }

    def see_signals(self, number: Any) -> None:
        """Take the number of signals that wait for this server, or the error in its place."""
        if isinstance(number, PyworkersError) or number:
            self._signalled = True
            self.nudge()

    def see_watch(self, name: Any) -> None:
        """Take the name of the last request of a viewer; None if there was no recent request."""
        if isinstance(name, bytes) and name != self._watch.name:
            self._watch = ViewerWatch(name[:32], time.monotonic() + WATCHED_TTL_S)
            self.nudge()

    async def beat(self, watch: ViewerWatch) -> None:
        """Send a beat, which answers ``watch``; execute the signal in its reply. Raises PyworkersError."""
        rss_kb = await self._memory.total_kb(self._facts().pids)
        await self.set_clock()
        facts, state = self._facts(), self._state()
        if self._shown_as not in ("", facts.identity):
            await self.deregister()
        self._shown_as = facts.identity
        jobs = {job.name: work(job, payload) for job, payload in self._payloads.of(facts.running)}
        fields = self._fields(facts, rss_kb, watch)
        signalled, self._signalled = self._signalled, False
        changed = jobs if jobs or self._had_jobs else None
        try:
            word = await self._store.arun(
                heartbeat.beat(
                    self._store.keys,
                    facts.identity,
                    fields,
                    changed,
                    signalled=signalled,
                    sidekiq6=self._sidekiq6,
                )
            )
        except PyworkersError:
            self._signalled |= signalled
            raise
        self._had_jobs = bool(jobs)
        self._shown, self._shown_at = state, time.monotonic()
        if word is not None:
            # There may be another signal.
            self._signalled = True
            self.nudge()
            self._execute(word.decode(errors="replace"))

    def _fields(self, facts: Facts, rss_kb: int, watch: ViewerWatch) -> dict[str, str | int | bytes]:
        """The hash of this server."""
        return {
            "info": info(facts, self._started_at),
            "concurrency": facts.concurrency,
            "busy": len(facts.running),
            # go-workers2 reads it as an integer, and compares it with Redis' clock (its heartbeat.go).
            "beat": int(time.time() + self._clock_offset_s),
            "rtt_us": self._rtt_us,
            "quiet": "true" if facts.quiet else "false",
            # Readers compare it with Redis' clock. Sidekiq's quiet is true for both.
            "stops_at": 0 if facts.stops_at is None else int(facts.stops_at + self._clock_offset_s),
            "rss": rss_kb,
            "worker_heartbeats": "[]",
            "groups": envelope.encode(described(facts)),
            "classes": declared(facts),
            "features": featured(facts),
            "signatures": signed(facts),
            "workers": listed_workers(facts.workers, self._memory.last_kb, watched=self._watched),
            "look": watch.name,
        }

    async def set_clock(self) -> None:
        """Read Redis' clock, and measure how long a reply takes, once a minute. Raises PyworkersError."""
        before = time.monotonic()
        if before - self._clock_read >= _CLOCK_S:
            self._clock_offset_s = await self._store.arun(heartbeat.clock()) - time.time()
            self._clock_read = time.monotonic()
            self._reactions.on_clock(self._clock_offset_s)
            self._rtt_us = round((self._clock_read - before) * 1e6)

    async def deregister(self) -> None:
        """Deregister this server; at a stop only after ``end``, because a beat would register it again.

        Raises PyworkersError.
        """
        if self._shown_as:
            deregistration = heartbeat.deregister(self._store.keys, self._shown_as, sidekiq6=self._sidekiq6)
            await self._store.arun(deregistration)

    def _execute(self, word: str) -> None:
        react, (name, _, jid) = self._reactions.words.get(word), word.partition(" ")
        if name == ASK_STACK:
            react = partial(self._reactions.ask_stack, jid)
        if react is None:
            log.warning("signal.unknown", signal=word[:100])
            return
        log.info("signal.received", signal=word[:100])
        react()

    async def _note_wire(self) -> None:
        """Note the versions that this server speaks, once a minute, for producers in other languages."""
        if time.monotonic() - self._noted >= NOTED_S:
            self._noted = time.monotonic()
            now = time.time() + self._clock_offset_s
            await self._store.arun(heartbeat.note_wire(self._store.keys, now))

    async def _note_busy(self) -> None:
        """Note how many jobs run and can run, if that has changed or was noted long ago."""
        facts, now = self._facts(), time.monotonic()
        busy = len(facts.running), facts.concurrency
        if busy != self._busy or now - self._busy_noted >= _BUSY_S:
            self._busy, self._busy_noted = busy, now
            await self._store.arun(note_busy(self._store.keys, facts.identity, *busy))

    async def _prune(self) -> None:
        if time.monotonic() - self._pruned < CLEANUP_S:
            return
        self._pruned = time.monotonic()
        for identity in await self._store.arun(cleanup(self._store.keys)):
            log.info("process.pruned", owner=identity.decode(errors="backslashreplace"))
