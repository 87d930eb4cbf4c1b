"""Delivery: the facts of one job from its fetch to its outcome.

Used in the master's event loop. It never decodes the job.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Delivery:
    """A job that runs or waits for a worker. ``raw`` are the bytes that LREM removes."""

    number: int
    queue: str
    raw: bytes
    errand: bool = False
    """True if it is not a job, but the exhaustion hooks of a job that is already settled."""
    tries: int = 0
    """How often it was handed out."""
    handed_at: float = 0.0
    """The time of the last hand-out, in epoch seconds."""
    timed_out_s: float = 0.0
    """The limit that it has exceeded, in seconds; 0 if none."""
    cancelled: str = ""
    """The job's id once its cancellation is requested, else empty."""

    def hand_out(self, now: float) -> None:
        """Note a hand-out."""
        self.tries += 1
        self.handed_at = now

    def cancel(self, jid: str) -> None:
        """Note that the cancellation of the job, which has this id, is requested."""
        self.cancelled = jid

    def overrun(self, limit_s: float) -> None:
        """Note that the job is killed because it exceeded its limit."""
        self.timed_out_s = limit_s

    @property
    def at_fault(self) -> bool:
        """True if its process is killed because of this job."""
        return bool(self.timed_out_s or self.cancelled)
