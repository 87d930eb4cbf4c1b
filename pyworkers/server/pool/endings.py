"""Endings: settles jobs that ended, were cancelled, or were lost with their worker.

Runs in the master's event loop. It logs the jobs that their worker could not log.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers import logs
from pyworkers.protocol.outcome import CANCELLED, Fate, Loss, Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.pool import losses, running
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.losses import Losses

KILL_GRACE_S = 2.0
"""Between the request to end that a job sees and the kill: time to clean up."""

log = logs.get_logger()


class Endings:
    """``settle`` takes the raw bytes of a job and what shall become of it."""

    def __init__(self, queue: str, settle: Callable[[bytes, Report], None], losses: Losses) -> None:
        self._queue = queue
        self._settle = settle
        self._losses = losses

    def decide_by(self, losses: Losses) -> None:
        """Decide for lost jobs by what the current generation declares, whichever ran them."""
        self._losses = losses

    def give_back(self) -> None:
        """From now on leave in their list the jobs that shall run again: a stop gives back all, in order."""
        settle = self._settle

        def leave(raw: bytes, report: Report) -> None:
            if report.outcome.fate is not Fate.REQUEUE:
                settle(raw, report)

        self._settle = leave

    def interrupted(self, job: Delivery, **about: object) -> None:
        """Name a job that is given back, and that its worker says nothing of."""
        log.warning("job.interrupted", queue=self._queue, **running.names(job.raw, self._queue), **about)

    def abandoned(self, job: Delivery) -> None:
        """Account for a job whose worker was killed because the server stops, or has lost its lease.

        One that was to be cancelled has ended with it.
        """
        if job.errand:
            return
        if job.cancelled:
            self.cancelled(job, killed=True)
        else:
            self.interrupted(job, killed=True)

    def cancelled(self, job: Delivery, **about: object) -> None:
        """Settle a job that shall not run, and that its worker says nothing of."""
        log.info("job.cancelled", queue=self._queue, jid=job.cancelled, **about)
        self._settle(job.raw, Report(CANCELLED, cancelled=job.cancelled))

    def ended(self, job: Delivery, report: Report) -> None:
        """Settle a job that ran to its end.

        One that was to be cancelled is done, if it says so; and otherwise it is not tried again.
        """
        if job.cancelled:
            outcome = report.outcome
            if outcome.fate not in (Fate.DONE, Fate.CANCELLED):
                fate = outcome.fate.name.lower()
                log.info("job.cancelled", queue=self._queue, jid=job.cancelled, instead_of=fate)
                outcome = CANCELLED
            report = report._replace(outcome=outcome, cancelled=job.cancelled)
        self._settle(job.raw, report)

    def lost(self, job: Delivery, failure: Failure) -> Loss | None:
        """Settle a job that went with its worker. If it is given up: what its exhaustion hooks are told."""
        if job.cancelled:
            self.cancelled(job, killed=True)
            return None
        if job.timed_out_s:
            failure = losses.timed_out(job.timed_out_s)
        outcome, about = self._losses.outcome(job.raw, failure)
        event = "job.timeout" if job.timed_out_s else "job.failed"
        log.error(event, queue=self._queue, outcome=outcome.fate.name.lower(), **about)
        name = self._losses.handler_name(str(about.get("job_class", "")))
        self._settle(job.raw, Report(outcome, job_class=name))
        # What is no job is dead without having failed, and has no hooks.
        if not outcome.final:
            return None
        return Loss(outcome.payload or job.raw, failure.error_class, failure.error_message)
