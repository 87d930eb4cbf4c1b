"""Presence: shows this server to Sidekiq's Web UI and API, and obeys their buttons.

Runs in the master's event loop, apart from the lease: whatever goes wrong here costs nobody a job. One server
is one process for Sidekiq, its workers are the threads: each row of their table stretches the interval in
which Sidekiq looks for scheduled jobs.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyworkers import envelope, logs
from pyworkers.errors import PyworkersError
from pyworkers.server.memory import Memory
from pyworkers.server.running import Payloads, Running
from pyworkers.server.waiting import pause
from pyworkers.server.weather import Weather
from pyworkers.store.presence import TTL_S, PresenceStore
from pyworkers.version import __version__

# Sidekiq beats every 5 s up to version 6, and every 10 s since.
BEAT_S = 5.0

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to say about this server; ``queues`` holds the number of workers by queue."""

    identity: str
    queues: Mapping[str, int]
    running: list[Running]
    quiet: bool
    pids: list[int]
    """All processes of the tree."""


class Presence:
    """``orders`` are the words that may come through Redis, each with what it does."""

    def __init__(
        self,
        store: PresenceStore,
        weather: Weather,
        facts: Callable[[], Facts],
        orders: Mapping[str, Callable[[], None]],
        memory: Memory,
    ) -> None:
        self._store = store
        self._weather = weather
        self._facts = facts
        self._orders = orders
        self._memory = memory
        self._payloads = Payloads()
        self._started_at = time.time()
        self._pruned = -float(TTL_S)
        self._shown_as = ""
        self._nudge = asyncio.Event()
        self._ended = False

    async def run(self) -> None:
        """Beat until ``end``."""
        while True:
            self._nudge.clear()
            pause_s = BEAT_S
            try:
                await self.beat()
                await self._prune()
                self._weather.up()
            except PyworkersError as error:
                pause_s = self._weather.down(error)
            if self._ended:
                return
            await pause(self._nudge, pause_s)

    def beat_now(self) -> None:
        """Beat without delay: something has changed that people wait to see."""
        self._nudge.set()

    def end(self) -> None:
        """Have ``run`` return, after the beat that is under way: a later one would show us again."""
        self._ended = True
        self._nudge.set()

    async def beat(self) -> None:
        """One beat, and the order that it brought. Raises PyworkersError."""
        facts = self._facts()
        if self._shown_as not in ("", facts.identity):
            await self._store.leave(self._shown_as)
        self._shown_as = facts.identity
        before = time.monotonic()
        now = await self._store.time()
        rtt_us = round((time.monotonic() - before) * 1e6)
        jobs = {job.name: work(job, payload) for job, payload in self._payloads.of(facts.running)}
        fields: dict[str, str | int] = {
            "info": info(facts, self._started_at),
            "concurrency": sum(facts.queues.values()),
            "busy": len(facts.running),
            # go-workers2 reads it as an integer, and judges it by Redis' clock (its heartbeat.go).
            "beat": int(now),
            "rtt_us": rtt_us,
            "quiet": "true" if facts.quiet else "false",
            "rss": await self._memory.total_kb(facts.pids),
            "worker_heartbeats": "[]",
        }
        word = await self._store.beat(facts.identity, fields, jobs)
        if word is not None:
            self._obey(word.decode(errors="replace"))

    async def leave(self) -> None:
        """Be shown no more. Only once ``run`` has ended. Raises PyworkersError."""
        if self._shown_as:
            await self._store.leave(self._shown_as)

    def _obey(self, word: str) -> None:
        order = self._orders.get(word)
        if order is None:
            log.warning("signal.unknown", signal=word[:100])
            return
        log.info("signal.received", signal=word)
        order()

    async def _prune(self) -> None:
        if time.monotonic() - self._pruned < TTL_S:
            return
        self._pruned = time.monotonic()
        for identity in await self._store.prune():
            log.info("process.pruned", owner=identity.decode(errors="backslashreplace"))


def info(facts: Facts, started_at: float) -> str:
    """The JSON text that describes the process: the keys of all Sidekiq generations (protocol.md, 6.3)."""
    weights = dict.fromkeys(facts.queues, 1)
    concurrency = sum(facts.queues.values())
    about = {
        "hostname": socket.gethostname(),
        "started_at": started_at,
        "pid": os.getpid(),
        "tag": _tag(),
        "concurrency": concurrency,
        "queues": list(facts.queues),
        "weights": [weights],
        "capsules": {"default": {"concurrency": concurrency, "mode": "random", "weights": weights}},
        "labels": [],
        "identity": facts.identity,
        "version": __version__,
        "embedded": False,
    }
    return envelope.encode(about)


def work(job: Running, payload: str) -> str:
    """The JSON text that describes a running job."""
    return envelope.encode({"queue": job.queue, "payload": payload, "run_at": int(job.started_at)})


def _tag() -> str:
    """Sidekiq's: the name of the folder that the application is in."""
    with suppress(OSError):
        return Path.cwd().name
    return ""
