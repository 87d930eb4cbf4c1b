"""Delivery: the facts of one job from its fetch to its outcome.

Runs in the master's event loop. It never decodes the job.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


class Holder(Protocol):
    """The members of a worker that its delivery uses."""

    pid: int

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""

    def end_job(self, delivery: Delivery, fault: str) -> None:
        """Kill the process if it still runs this job; ``fault`` is the reason."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A job that runs or waits for a worker. ``raw`` are the bytes that LREM removes."""

    number: int
    queue: str
    raw: bytes
    errand: bool = False
    """True if it is not a job, but the exhaustion hooks of a job that is already settled."""
    worker: Holder | None = None
    """The worker that runs it; None while it waits for one."""
    tries: int = 0
    """The number of workers that it was handed to."""
    started_at: float = 0.0
    """The time of the last hand-out, in epoch seconds."""
    timed_out_s: float = 0.0
    """The limit that it has exceeded, in seconds; 0 if none."""
    cancelled: str = ""
    """The job's id once its cancellation is requested, else empty."""

    def start(self, worker: Holder) -> None:
        """Note the hand-out to a worker."""
        self.worker = worker
        self.tries += 1
        self.started_at = time.time()

    def wait_again(self) -> None:
        """Note that the worker died before it began the job."""
        self.worker = None

    def cancel(self, jid: str) -> None:
        """Note that the cancellation of the job, which has this id, is requested."""
        self.cancelled = jid

    def overrun(self, limit_s: float) -> None:
        """Note that the job is killed because it exceeded its limit."""
        self.timed_out_s = limit_s
