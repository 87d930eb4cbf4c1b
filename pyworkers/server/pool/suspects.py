"""Suspects: keeps marked jobs back until it is known whether they may start, and runs suspects one at a time.

Runs in the master's event loop, one for all queues. A marked job was in the list of a dead server
(protocol/suspects.py); the suspects of a dead process are the hand-out's. It never decodes a job.

    marked job ──► its entry ──► one dead server ──► starts at once
                      │
                      ├──► several: a suspect ──► waits for its turn ──► noted in Redis ──► starts
                      └──► responsible for three deaths ──► dead
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyworkers.errors import WorkerLost
from pyworkers.protocol.outcome import Fate, Report
from pyworkers.protocol.retry import Failure
from pyworkers.protocol.suspects import MAX_DEATHS, SUSPECT_FROM, Entry, acquitted, field_of
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.pool.delivery import Delivery
from pyworkers.store import suspects
from pyworkers.store.store import Store

if TYPE_CHECKING:
    from pyworkers.server.pool.jobs import Jobs

# A suspect that ends without an outcome (a stop, a lost lease) frees the turn at the next check.
_CHECK_S = 1.0
# Each check lets the entry of a running suspect live for another day.
_REST_S = 3600.0


class _Turn(NamedTuple):
    """A job with the table that it is in."""

    job: Delivery
    jobs: Jobs


class Suspects(Part):
    """The marked jobs of one server that have not started, and the one suspect that runs."""

    name = "suspects"

    def __init__(
        self,
        store: Store,
        identity: Callable[[], str],
        health: Health,
        on_suspect: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(health)
        self._on_suspect = on_suspect
        self._store = store
        self._identity = identity
        self._unread: dict[Delivery, Jobs] = {}
        self._waiting: dict[Delivery, Jobs] = {}
        self._running: _Turn | None = None

    # For the tables

    def add(self, job: Delivery, jobs: Jobs) -> None:
        """Keep a marked job back until its entry is read."""
        self._unread[job] = jobs
        self.nudge()

    def drop(self, job: Delivery) -> None:
        """Forget a job that is kept back: it does not start here."""
        self._unread.pop(job, None)
        self._waiting.pop(job, None)

    def settled(self, raw: bytes, report: Report) -> Report:
        """The report of a marked job, which also deletes its entry. The next suspect may start."""
        self.nudge()
        return report._replace(outcome=acquitted(raw, report.outcome))

    # The work

    async def look(self) -> float:
        """Read the entries of new jobs, and start the next suspect if none runs.

        While Redis is unreachable, the jobs are kept back: a job may not start before it is noted.
        """
        identity, asked = self._identity(), list(self._unread)
        reading = suspects.read(self._store.keys, identity, [field_of(job.raw) for job in asked])
        found = await self._store.arun(reading)
        for job, entry in zip(asked, found.entries, strict=True):
            # Else it was taken back meanwhile.
            if (jobs := self._unread.pop(job, None)) is not None:
                self._decide(_Turn(job, jobs), entry)
        await self._give_turn(identity, found.running)
        return _CHECK_S if self._waiting else _REST_S

    def _decide(self, turn: _Turn, entry: Entry) -> None:
        if entry.deaths >= MAX_DEATHS:
            turn.jobs.condemn(turn.job, _failure(entry))
        elif entry.servers < SUSPECT_FROM:
            turn.jobs.start(turn.job)
        else:
            self._on_suspect()
            self._waiting[turn.job] = turn.jobs
            turn.jobs.suspend(turn.job)

    async def _give_turn(self, identity: str, noted: str) -> None:
        """Start the next suspect if none runs. It is noted first: the server may die as soon as it starts."""
        if self._running is not None and not self._running.jobs.holds(self._running.job):
            self._running = None
        turn = self._running or next((_Turn(*item) for item in self._waiting.items()), None)
        field = field_of(turn.job.raw) if turn else ""
        if field:
            await self._store.arun(suspects.run_alone(self._store.keys, identity, field))
        elif noted:
            await self._store.arun(suspects.run_none(self._store.keys, identity))
        if turn is None or turn is self._running:
            return
        if self._waiting.pop(turn.job, None) is None:
            # It was taken back meanwhile.
            self.nudge()
            return
        self._running = turn
        turn.jobs.start(turn.job)


def _failure(entry: Entry) -> Failure:
    message = f"its server died while it ran; dead after {entry.deaths} such servers"
    return Failure(WorkerLost.__name__, message, crashed=True, fate=Fate.DEAD)
