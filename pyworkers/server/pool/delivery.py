"""Delivery: the facts of one job from its fetch to its outcome.

Used in the master's event loop. It never decodes the job.
"""

from __future__ import annotations

from pyworkers.ipc.jobsocket import Kind
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.suspects import MARK


class Delivery:
    """A job that runs or waits for a worker. ``raw`` are the bytes that LREM removes.

    What is true of few jobs stands in the class: one is made for each job, and each attribute takes time.
    """

    kind = int(Kind.JOB)
    """That of its packet; a number, because reading a member of an enum takes longer."""
    errand = False
    """True if it is not a job, but an Errand."""
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
    frees: tuple[Effect, ...] = ()
    """The effects that free the slots of its limits, whatever its end."""
    plain = True
    """False if its end is more than its outcome: it is cancelled, or may hold slots."""

    def __init__(self, number: int, queue: str, raw: bytes) -> None:
        self.number = number
        self.queue = queue
        self.raw = raw

    def hand_out(self, now: float) -> None:
        """Note a hand-out."""
        self.tries += 1
        self.handed_at = now

    def saved(self, jid: str) -> None:
        """Note that the job, which has this id, has saved a checkpoint."""
        self.iteration = jid

    def cancel(self, jid: str) -> None:
        """Note that the cancellation of the job, which has this id, is requested."""
        self.cancelled = jid
        self.plain = False

    def renumber(self, number: int) -> None:
        """Give it another number: that of a worker's page or report is for the hand-out before."""
        self.number = number

    def hold(self, frees: tuple[Effect, ...]) -> None:
        """Note that the job may hold slots, which these effects free."""
        if frees:
            self.frees, self.plain = frees, False

    def grant(self) -> None:
        """Note that the job may start, as its limits allow."""
        self.kind = Kind.GRANTED

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


class Errand(Delivery):
    """The exhaustion hooks of a job that is already settled; ``raw`` is its Loss."""

    kind = int(Kind.EXHAUSTED)
    errand = True
