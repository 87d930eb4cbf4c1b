"""Delivery: the state and the facts of one job, from its fetch until Redis has its outcome.

Used in the master's event loop. It never decodes the job. ``Pool.run`` applies the events of a group one at a
time. The report of a job is no event: it goes to the outbox at once.

    FETCHED ──► OFFERED ──► SETTLING ──► SETTLED
       │         │   ▲          ▲
       └────► HELD ──┴──────────┘
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TypeAlias

from pyworkers.ipc.jobsocket import PacketKind
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.limits import Ask
from pyworkers.protocol.outcome import Loss, Report
from pyworkers.protocol.suspects import MARK
from pyworkers.server.generations.reaper import ProcessEvent
from pyworkers.store.jobs import Settlement


class GroupEvent:
    """What a worker, the table of jobs or a gate reports to the pool of their group."""

    __slots__ = ()


Event: TypeAlias = ProcessEvent | GroupEvent
Events: TypeAlias = "asyncio.Queue[Event]"


class DeliveryState(Enum):
    """The state of a job in the master; ``NEXT`` has the transitions."""

    FETCHED = auto()
    """In an in-progress list of this server; nothing has decided yet whether it may start."""
    HELD = auto()
    """May not start yet: its entry or its limits are asked for, or it waits for its own worker."""
    OFFERED = auto()
    """In the job socket, or taken from it. By which worker shows a look into their pages alone."""
    SETTLING = auto()
    """Its end is decided, and is not in Redis yet."""
    SETTLED = auto()
    """Redis has its end; or this server gives it up, and it is still in the in-progress list."""


NEXT = {
    DeliveryState.FETCHED: {DeliveryState.HELD, DeliveryState.OFFERED, DeliveryState.SETTLING},
    DeliveryState.HELD: {*DeliveryState} - {DeliveryState.FETCHED},
    DeliveryState.OFFERED: {*DeliveryState} - {DeliveryState.FETCHED},
    # Again, if Redis does not take its outcome.
    DeliveryState.SETTLING: {DeliveryState.SETTLING, DeliveryState.SETTLED},
    DeliveryState.SETTLED: set[DeliveryState](),
}
"""The transitions. The tests check each one; here that would take time for each job."""
# A look into an enum takes longer.
_OFFERED, _SETTLING, _SETTLED = DeliveryState.OFFERED, DeliveryState.SETTLING, DeliveryState.SETTLED


class Delivery(Settlement):
    """A job of this server; ``report`` is set at its end.

    The defaults that few jobs change are in the class: each attribute of an object takes time for every job.
    """

    state = DeliveryState.FETCHED
    kind = int(PacketKind.JOB)
    """The kind of its packet; a number, because reading a member of an enum takes longer."""
    is_task = False
    """True if it is not a job, but a WorkerTask."""
    keeps_room = False
    """True if room is kept for it while it is held."""
    alone = False
    """True if it waits for its own worker, or has one."""
    tries = 0
    """How often it was handed out."""
    handed_at = 0.0
    """The time of the last hand-out, in seconds of the monotonic clock."""
    timed_out_s = 0.0
    """The limit that it has exceeded, in seconds; 0 if none."""
    iteration = ""
    """The job's id once it has saved a checkpoint, else empty."""
    cancelled = ""
    """The job's id once its cancellation is requested, else empty."""
    at_end: tuple[Effect, ...] = ()
    """The effects of each kind of end, for its limits: they free slots, and note a start that is not yet."""
    starts: tuple[Effect, ...] = ()
    """The effects that note its start, for the rates that have granted it."""
    plain = True
    """False if its end is more than its outcome: it is cancelled, is marked, or has limits."""
    cleared = False
    """True once the entry of a marked job lets it start."""
    ask: Ask | None = None
    """What it asks of its limits, until they have granted it."""
    loss: Loss | None = None
    """What its hooks get, if it was lost and there are any."""

    def __init__(self, number: int, queue: str, raw: bytes) -> None:
        self.number = number
        self.queue = queue
        self.raw = raw

    # Its states

    def keep(self, *, room: bool, alone: bool) -> None:
        """Note that the job may not start yet: ``room`` is kept for it, or it waits to run ``alone``."""
        self.state = DeliveryState.HELD
        self.alone, self.keeps_room = alone, room

    def make_room(self) -> None:
        """Note that the held job needs no room for now."""
        self.keeps_room = False

    def offer(self, now: float, *, alone: bool = False) -> None:
        """Note a hand-out, to its own worker if ``alone``."""
        self.state = _OFFERED
        self.tries += 1
        self.handed_at = now
        self.alone = alone

    def settling(self, report: Report) -> None:
        """Note the report with its end, for Redis."""
        self.state = _SETTLING
        self.report = report

    def settled(self) -> None:
        """Note that Redis has its end, or that this server gives it up."""
        self.state = _SETTLED

    @property
    def has_ended(self) -> bool:
        """True once its end is decided, or this server has given it up."""
        return self.state is _SETTLING or self.state is _SETTLED

    # Its facts

    def saved(self, jid: str) -> None:
        """Note that the job, which has this id, has saved a checkpoint."""
        self.iteration = jid

    def cancel(self, jid: str) -> None:
        """Note that the cancellation of the job, which has this id, is requested."""
        self.cancelled = jid
        self.plain = False

    def lose(self, loss: Loss) -> None:
        """Note that the job was lost, and has hooks to call."""
        self.loss = loss

    def mark(self) -> None:
        """Note that dead servers had the job: its end also ends that."""
        self.plain = False

    def clear(self) -> None:
        """Note that the entry of the marked job lets it start."""
        self.cleared = True

    def ask_for(self, ask: Ask) -> None:
        """Note that its worker has asked for its limits."""
        self.ask = ask

    def renumber(self, number: int) -> None:
        """Give it another number: the number in a worker's page or report is for the hand-out before."""
        self.number = number

    def hold(self, frees: tuple[Effect, ...], starts: tuple[Effect, ...]) -> None:
        """Note that the job may hold slots, which the first effects free; the others note its start."""
        if frees:
            self.at_end, self.plain = frees, False
        if starts:
            self.starts += starts

    def rate(self, start: Effect) -> None:
        """Note that the rate of its queue has granted the job; the effect notes its start."""
        self.starts = (start,)
        self.kind = PacketKind.RATED

    def begin(self) -> None:
        """Note that the job has started: its end notes that in Redis, if it comes first."""
        self.at_end, self.plain = (*self.at_end, *self.starts), False

    def noted(self) -> tuple[Effect, ...]:
        """The effects that note its start, which is so noted."""
        self.at_end = tuple(effect for effect in self.at_end if effect not in self.starts)
        return self.starts

    def grant(self) -> None:
        """Note that the job may start, as its limits allow."""
        self.ask = None
        self.kind = PacketKind.GRANTED_RATED if self.starts else PacketKind.GRANTED

    def overrun(self, limit_s: float) -> None:
        """Note that the job is killed because it exceeded its limit."""
        self.timed_out_s = limit_s

    @property
    def marked(self) -> bool:
        """True if dead servers had the job (protocol/suspects.py)."""
        return self.raw.endswith(MARK)

    @property
    def at_fault(self) -> bool:
        """True if its process is killed because of this job."""
        return bool(self.timed_out_s or self.cancelled)


class WorkerTask(Delivery):
    """Work for a worker that is no job: the hooks of a job that was lost and settled; ``raw`` is its Loss."""

    kind = int(PacketKind.LOST)
    is_task = True

    def ended(self, answer: bytes) -> None:
        """Note the end, and the payload of the report."""

    def dropped(self) -> None:
        """Note that no worker does it any more."""


class SlotsTask(WorkerTask):
    """Making the jobs of cron slots; ``raw`` is a SlotRequest. ``answer`` gets the payload of the report.

    It is cancelled if the worker is lost.
    """

    kind = int(PacketKind.SLOTS)

    def __init__(self, number: int, queue: str, raw: bytes) -> None:
        super().__init__(number, queue, raw)
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def ended(self, answer: bytes) -> None:
        """Pass the answer on, unless it came too late."""
        if not self.answer.done():
            self.answer.set_result(answer)

    def dropped(self) -> None:
        """Cancel the answer: another worker may be asked."""
        self.answer.cancel()
