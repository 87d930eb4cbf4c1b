"""Gates: what decides whether a job may start. Each is asked in its turn (``JobTable.gates``).

Runs in the master's event loop; the gates of limits and of suspects are one each for all groups. They never
decode a job. One that holds a job decides later, by an event.

    job ──► cancelled ──► (one job) ──► suspects ──► asks ──► crashed ──► START

A marked job was in the list of a dead server (protocol/suspects.py); the suspects of a dead process are in
the table of jobs.

    marked job ──► its entry ──► one dead server ──► starts at once
                      │
                      ├──► several: a suspect ──► waits for its turn ──► noted in Redis ──► starts
                      └──► responsible for three deaths ──► dead

A job that asks for its limits is in no worker, and keeps room for itself; one whose turn is near waits here
without. The decision is Redis' (limits/ask.lua).

    ask of a worker ──► Redis ──► granted ──► handed out again
                          │ ▲
                          ├─┘ its turn is near: asked again then
                          └────► in schedule: forgotten here
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyworkers import logs
from pyworkers.errors import WorkerLost
from pyworkers.failpoints import hit
from pyworkers.protocol import envelope
from pyworkers.protocol.outcome import Fate, Report
from pyworkers.protocol.retry import Failure
from pyworkers.protocol.suspects import MARK, MAX_DEATHS, SUSPECT_FROM, SuspectEntry, deleting_entry, field_of
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.pool.delivery import Delivery, Events, GroupEvent
from pyworkers.server.pool.settling import CancelRequested, Cause, Lost, PutOff, Untaken
from pyworkers.server.running import names
from pyworkers.store import suspects
from pyworkers.store.flow import limits
from pyworkers.store.flow.limits import AskedJob, AskReply, Verdict
from pyworkers.store.store import Store

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Start:
    """The job may start, as far as this gate knows."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The job may not start yet. ``room`` is kept for it, or it waits to run ``alone`` in its worker."""

    room: bool = True
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """The job does not start: it is settled for this cause."""

    cause: Cause


Decision: TypeAlias = Start | Hold | Settle
START, HOLD, NO_ROOM, ALONE = Start(), Hold(), Hold(room=False), Hold(room=False, alone=True)
_CANCELLED = Settle(CancelRequested())
_PUT_OFF = Settle(PutOff())
_UNTAKEN = Settle(Untaken())


@dataclass(frozen=True, slots=True)
class Decided(GroupEvent):
    """The gate that holds a job has decided on it."""

    job: Delivery
    decision: Decision


@dataclass(frozen=True, slots=True)
class Waiting(GroupEvent):
    """A job waits for its own worker."""


class Gate:
    """Lets a job start, holds it, or has it settled. This one lets every job start."""

    name = ""

    @property
    def is_open(self) -> bool:
        """True if at this moment every job may start that Redis has handed out just now."""
        return False

    def admit(self, _job: Delivery) -> Decision:
        """Decide whether a job may start. Called for each job, and again when a held one may go on."""
        return START

    def keep(self, job: Delivery, events: Events) -> None:
        """Decide later on a job that it holds, by putting ``Decided`` into these events."""

    def drop(self, job: Delivery) -> None:
        """Forget a job that it may hold: it does not start here."""


class CancelledJobs(Gate):
    """The cancelled jobs, which do not start."""

    name = "cancelled"

    def __init__(self, cancellations: Cancellations) -> None:
        self._cancellations = cancellations

    @property
    def is_open(self) -> bool:
        """True if no job is cancelled."""
        return not self._cancellations.noted

    def admit(self, job: Delivery) -> Decision:
        """Have a cancelled job settled."""
        noted = self._cancellations.noted
        if noted and not job.cancelled and (jid := self._cancellations.jid_of(job.raw)):
            job.cancel(jid)
        return _CANCELLED if job.cancelled else START


class OneJob(Gate):
    """Lets one job start, for a server that ends after it, and calls ``on_job``. Others are given back."""

    name = "one"

    def __init__(self, on_job: Callable[[], None]) -> None:
        self._on_job = on_job
        self._job: Delivery | None = None

    @property
    def taken(self) -> bool:
        """True once there is the job."""
        return self._job is not None

    def admit(self, job: Delivery) -> Decision:
        """Take the first job, which may pass again; give all others back to the heads of their queues."""
        if self._job is None:
            self._job = job
            self._on_job()
        return START if job is self._job else _UNTAKEN


class CrashedJobs(Gate):
    """The jobs that were alone in a process when it died: the next time, no other job is in it."""

    name = "crashed"

    def __init__(self) -> None:
        self._shared = False

    def share(self, shared: bool) -> None:
        """Note whether a worker runs several jobs at once."""
        self._shared = shared

    @property
    def is_open(self) -> bool:
        """True if no worker runs several jobs."""
        return not self._shared

    def admit(self, job: Delivery) -> Decision:
        """Hold a job that has crashed, if a worker runs several."""
        return ALONE if self._shared and b'"crash_count"' in job.raw else START

    def keep(self, job: Delivery, events: Events) -> None:
        """Have the pool start a worker for it."""
        events.put_nowait(Waiting())


# A suspect that ends without an outcome (a stop, a lost lease) frees the turn at the next check.
_CHECK_S = 1.0
# Each check lets the entry of a running suspect live for another day.
_REST_S = 3600.0


class Suspects(Gate, Part):
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
        self._unread: dict[Delivery, Events] = {}
        self._waiting: dict[Delivery, Events] = {}
        self._running: Delivery | None = None

    # For the tables

    def admit(self, job: Delivery) -> Decision:
        """Hold a marked job, until its entry lets it start."""
        return HOLD if job.raw.endswith(MARK) and not job.cleared else START

    def keep(self, job: Delivery, events: Events) -> None:
        """Keep a marked job back until its entry is read."""
        job.mark()
        self._unread[job] = events
        self.nudge()

    def drop(self, job: Delivery) -> None:
        """Forget a job that is kept back: it does not start here."""
        self._unread.pop(job, None)
        self._waiting.pop(job, None)

    def settled(self, job: Delivery, report: Report) -> Report:
        """The report of a job; of a marked one, it also deletes its entry, and the next suspect may start."""
        if not job.marked:
            return report
        self.nudge()
        return report._replace(outcome=deleting_entry(job.raw, report.outcome))

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
            if (events := self._unread.pop(job, None)) is not None:
                self._decide(job, events, entry)
        await self._give_turn(identity, found.running)
        return _CHECK_S if self._waiting else _REST_S

    def _decide(self, job: Delivery, events: Events, entry: SuspectEntry) -> None:
        if entry.deaths >= MAX_DEATHS:
            events.put_nowait(Decided(job, Settle(Lost(_failure(entry)))))
        elif entry.servers < SUSPECT_FROM:
            _start(job, events)
        else:
            self._on_suspect()
            self._waiting[job] = events
            log.warning("job.held", queue=job.queue, **names(job.raw, job.queue))
            # Its worker is free for another job until it has its turn.
            events.put_nowait(Decided(job, NO_ROOM))

    async def _give_turn(self, identity: str, noted: str) -> None:
        """Start the next suspect if none runs. It is noted first: the job may kill the server at once."""
        if self._running is not None and self._running.has_ended:
            self._running = None
        job = self._running or next(iter(self._waiting), None)
        field = field_of(job.raw) if job else ""
        if field:
            await self._store.arun(suspects.run_alone(self._store.keys, identity, field))
        elif noted:
            await self._store.arun(suspects.run_none(self._store.keys, identity))
        if job is None or job is self._running:
            return
        if (events := self._waiting.pop(job, None)) is None:
            # It was taken back meanwhile.
            self.nudge()
            return
        self._running = job
        _start(job, events)


def _start(job: Delivery, events: Events) -> None:
    job.clear()
    events.put_nowait(Decided(job, START))


def _failure(entry: SuspectEntry) -> Failure:
    message = f"its server died while it ran; dead after {entry.deaths} such servers"
    return Failure(WorkerLost.__name__, message, crashed=True, fate=Fate.DEAD)


# How often a server frees the slots of dead servers, while limits are in use. One that recovers a server does
# it at once.
_SWEEP_S = 60.0
# When Redis refuses commands on the keys of one job, it is asked again after this time.
_REFUSED_S = 1.0


@dataclass(frozen=True, slots=True)
class _Open:
    """A job without a final reply. ``due``: the time (of the loop's clock) to ask."""

    asked: AskedJob
    events: Events
    due: float = 0.0


class Asks(Gate, Part):
    """The jobs of one server that ask for their limits. ``expect`` is called with the times in schedule."""

    name = "asks"

    def __init__(
        self, store: Store, identity: Callable[[], str], health: Health, expect: Callable[[float], None]
    ) -> None:
        super().__init__(health)
        self._store = store
        self._identity = identity
        self._expect = expect
        self._open: dict[Delivery, _Open] = {}
        self._sweep_at: float | None = 0.0
        """When to sweep (loop time); None: no limit is in use. Other servers may use one at the start."""

    # For the tables

    @property
    def is_open(self) -> bool:
        """True: only a worker asks, for a job that it has decoded."""
        return True

    def admit(self, job: Delivery) -> Decision:
        """Hold a job that asks."""
        return START if job.ask is None else HOLD

    def keep(self, job: Delivery, events: Events) -> None:
        """Ask for a job, until it is answered or dropped. From now on, its end frees its slots."""
        ask, identity = job.ask, self._identity()
        if ask is not None:
            job.hold(limits.frees(identity, ask), limits.starts(identity, ask))
            payload = envelope.splice(job.raw, ask.changes) if ask.changes else b""
            self._open[job] = _Open(AskedJob(ask, job.queue, job.raw, payload), events)
            self.nudge()

    def drop(self, job: Delivery) -> None:
        """Forget a job that does not start here."""
        self._open.pop(job, None)

    def sweep_soon(self) -> None:
        """Free the slots of a server whose jobs were recovered."""
        self._sweep_at = 0.0
        self.nudge()

    # The work

    async def look(self) -> float:
        """Ask for the jobs that are due; sweep if it is time."""
        now = asyncio.get_running_loop().time()
        due = {job: one.asked for job, one in self._open.items() if one.due <= now}
        if due:
            hit("before_ask")
            asking = limits.ask(self._store.keys, self._identity(), list(due.values()))
            replies = await self._store.arun(asking)
            hit("after_ask")
            for job, reply in zip(due, replies, strict=True):
                # Else it has ended meanwhile, which frees its slots.
                if (one := self._open.get(job)) is not None:
                    self._decide(job, one, reply, now)
            self._sweep_at = self._sweep_at or 0.0
        if self._sweep_at is not None and self._sweep_at <= now:
            swept = await self._store.arun(limits.sweep(self._store.keys))
            self._sweep_at = now + _SWEEP_S if swept.limits else None
        return self._rest()

    def failed(self, backoff_s: float) -> float:
        """Sweep at the next call, which so sends a command, also if no job waits any more."""
        if self._sweep_at is not None:
            self._sweep_at = 0.0
        return backoff_s

    def _rest(self) -> float:
        """The seconds until the next job is due, or the next sweep."""
        now = asyncio.get_running_loop().time()
        times = [one.due for one in self._open.values()]
        times += [] if self._sweep_at is None else [self._sweep_at]
        return max(0.0, min(times) - now) if times else _REST_S

    def _decide(self, job: Delivery, one: _Open, reply: AskReply | None, now: float) -> None:
        if reply is None:
            self._open[job] = replace(one, due=now + _REFUSED_S)
        elif reply.verdict is Verdict.WAIT:
            self._open[job] = replace(one, due=now + reply.after_s)
            one.events.put_nowait(Decided(job, NO_ROOM))
        else:
            del self._open[job]
            self._conclude(job, one, reply)

    def _conclude(self, job: Delivery, one: _Open, reply: AskReply) -> None:
        if reply.verdict is Verdict.GRANTED:
            job.grant()
            one.events.put_nowait(Decided(job, START))
            return
        if reply.verdict is Verdict.BROKEN:
            log.error("limit.failed", queue=job.queue, error=f"WRONGTYPE {reply.key} is not a zset")
        if reply.verdict is not Verdict.GONE:
            log.debug("job.limited", queue=job.queue, jid=one.asked.ask.jid, until=reply.at)
            self._expect(reply.at)
        one.events.put_nowait(Decided(job, _PUT_OFF))


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates that the groups of one server share."""

    cancelled: CancelledJobs
    suspects: Suspects
    asks: Asks
    one: OneJob | None = None
    """For a server that ends after one job."""

    def __iter__(self) -> Iterator[Gate]:
        """The gates in their order."""
        yield self.cancelled
        if self.one is not None:
            yield self.one
        yield self.suspects
        yield self.asks
