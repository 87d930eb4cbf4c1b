"""Endings: settles each job of a group, whether it ended, was cancelled, or was lost with its worker.

Runs in the master's event loop. It acts: it passes the outcome on, and logs the jobs that their worker could
not log. The decision on a lost job is in ``losses``, which is pure and has a table of tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from pyworkers import logs
from pyworkers.protocol.effects import DeleteIteration
from pyworkers.protocol.flow.ending import ending_of
from pyworkers.protocol.outcome import BURIED, CANCELLED, REQUEUE, Fate, Loss, Outcome, Report
from pyworkers.protocol.retry import Failure
from pyworkers.server import running
from pyworkers.server.pool import losses
from pyworkers.server.pool.delivery import Delivery, DeliveryState
from pyworkers.server.pool.losses import Losses

KILL_GRACE_S = 2.0
"""Seconds between the request to end and the kill, in which a job can clean up."""

log = logs.get_logger()
P = ParamSpec("P")
R = TypeVar("R")


End: TypeAlias = "Callable[Concatenate[Endings, Delivery, P], R]"


def _of_one_job(instead: Outcome) -> Callable[[End[P, R]], Callable[..., R | None]]:
    """One guard around the end of one job: an error in it ends that job alone, by the outcome ``instead``.

    The bytes of a job are a producer's. Whatever they contain, the server goes on.
    """

    def guard(end: End[P, R]) -> Callable[..., R | None]:
        @wraps(end)
        def guarded(self: Endings, job: Delivery, /, *args: P.args, **about: P.kwargs) -> R | None:
            try:
                return end(self, job, *args, **about)
            except Exception:
                self.failed(job, instead)
                return None

        return guarded

    return guard


class Endings:
    """Settles the jobs of one group: calls ``settle`` with a job and its report.

    ``hand_back`` is called with jobs that no worker has taken, the oldest first, and ``count`` with the
    number of jobs that run again because their process has ended.
    """

    def __init__(
        self,
        settle: Callable[[Delivery, Report], None],
        hand_back: Callable[[list[Delivery]], None],
        losses: Losses,
        count: Callable[[int], None],
    ) -> None:
        self._settle = settle
        self._count = count
        self._hand_back = hand_back
        self._losses = losses

    def decide_by(self, losses: Losses) -> None:
        """Decide on all lost jobs by these declarations, which are from the current generation."""
        self._losses = losses

    def give_back(self) -> None:
        """Leave requeued jobs in the in-progress list from now on: a stop gives back all of it, in order.

        Those with effects or with another payload are settled, because the list gives them back without.
        """
        settle = self._settle

        def leave(job: Delivery, report: Report) -> None:
            outcome = report.outcome
            if outcome.fate is not Fate.REQUEUE or outcome.effects or outcome.payload:
                settle(job, report)
            else:
                _leave(job)

        def leave_all(jobs: list[Delivery]) -> None:
            for job in jobs:
                _leave(job)

        self._settle = leave
        self._hand_back = leave_all
        # The stop counts what it gives back.
        self._count = lambda _jobs: None

    def interrupted(self, job: Delivery, **about: object) -> None:
        """Log a job that is given back; its worker does not log it."""
        log.warning("job.interrupted", queue=job.queue, **running.names(job.raw, job.queue), **about)

    @_of_one_job(REQUEUE)
    def left(self, job: Delivery, /, **about: object) -> None:
        """Log a job that is given back with its list; one that may hold slots is given back now."""
        self.interrupted(job, **about)
        if job.at_end:
            self._free(job)
        else:
            _leave(job)

    @_of_one_job(REQUEUE)
    def _free(self, job: Delivery) -> None:
        """Give back a job that may hold slots or has started, and free them."""
        self._settle_job(job, Report(REQUEUE))

    def untaken(self, jobs: list[Delivery]) -> None:
        """Give back jobs that no worker has taken, the oldest first, without a line in the log for each."""
        self._hand_back([job for job in jobs if not job.at_end])
        for job in reversed(jobs):
            if job.at_end:
                self._free(job)

    def suspected(self, job: Delivery) -> None:
        """Log a job that is to run alone, because its process died and it was one of several in it."""
        log.warning("job.suspected", queue=job.queue, **running.names(job.raw, job.queue))
        self._count(1)

    @_of_one_job(REQUEUE)
    def bystander(self, job: Delivery) -> None:
        """Give back a job whose process ended because of another job. It does not count as an attempt."""
        self.interrupted(job, killed=True)
        self._count(1)
        self._settle_unreported(job, Report(REQUEUE))

    def held(self, job: Delivery) -> None:
        """Log a job that waits for its turn, because several servers died while they had it."""
        log.warning("job.held", queue=job.queue, **running.names(job.raw, job.queue))

    @_of_one_job(REQUEUE)
    def abandoned(self, job: Delivery) -> None:
        """Log a job whose worker was killed because the server stops, or has lost its lease.

        A job for which a cancellation was requested counts as cancelled.
        """
        if job.cancelled:
            self.cancelled(job, killed=True)
        else:
            self.left(job, killed=True)

    @_of_one_job(BURIED)
    def cancelled(self, job: Delivery, /, **about: object) -> None:
        """Settle a cancelled job that its worker does not report."""
        self._log_cancelled(job, **about)
        self._settle_unreported(job, Report(CANCELLED, cancelled=job.cancelled))

    def _log_cancelled(self, job: Delivery, **about: object) -> None:
        named = {**running.names(job.raw, job.queue), "jid": job.cancelled}
        log.info("job.cancelled", queue=job.queue, **named, **about)

    def ended(self, job: Delivery, report: Report) -> None:
        """Settle a job that ran to its end.

        If its cancellation was requested and it is not done, it counts as cancelled, and is not retried.
        """
        # The guard of the others, without a call: this is the end of nearly all jobs.
        try:
            if job.plain:
                self._settle(job, report)
            else:
                self._settle_job(job, self._instead(job, report) if job.cancelled else report)
        except Exception:
            self.failed(job, BURIED)

    def _instead(self, job: Delivery, report: Report) -> Report:
        """The report of a job whose cancellation was requested."""
        outcome = report.outcome
        if outcome.fate not in (Fate.DONE, Fate.CANCELLED):
            self._log_cancelled(job, instead_of=outcome.fate.name.lower())
            outcome = self._with_effects(job, CANCELLED)
        return report._replace(outcome=outcome, cancelled=job.cancelled)

    @_of_one_job(BURIED)
    def lost(self, job: Delivery, failure: Failure) -> Loss | None:
        """Settle a job that was lost with its worker. Returns its loss if it has hooks to call."""
        if job.cancelled:
            self.cancelled(job, killed=True)
            return None
        if job.timed_out_s:
            failure = losses.timed_out(job.timed_out_s)
        outcome, about = self._losses.outcome(job.queue, job.raw, failure)
        event = "job.timeout" if job.timed_out_s else "job.failed"
        log.error(event, queue=job.queue, outcome=outcome.fate.name.lower(), **about)
        name = self._losses.handler_name(job.queue, str(about.get("job_class", "")))
        self._settle_unreported(job, Report(outcome, job_class=name))
        # An invalid job goes to ``dead``, but it did not fail, and it has no hooks.
        if not (outcome.final or (outcome.failed and self._losses.reports)):
            return None
        return Loss(job.raw, str(about["jid"]), outcome)

    def failed(self, job: Delivery, instead: Outcome) -> None:
        """Settle a job whose own end has failed, as it is stored; called while that error is handled.

        If this fails as well, the job stays in its in-progress list, where this server finds it again.
        """
        log.exception("job.unsettled", queue=job.queue, fate=instead.fate.name.lower())
        try:
            self._settle_job(job, Report(instead, cancelled=job.cancelled))
        except Exception:
            _leave(job)
            log.exception("job.unsettled", queue=job.queue, fate="none")

    def _settle_unreported(self, job: Delivery, report: Report) -> None:
        """Settle a job whose worker has not computed the effects of its end."""
        outcome = self._with_effects(job, report.outcome)
        self._settle_job(job, report._replace(outcome=outcome))

    def _with_effects(self, job: Delivery, outcome: Outcome) -> Outcome:
        outcome = self._losses.ended(job.queue, job.raw, outcome, partial(_left_out, job))
        if job.iteration and ending_of(outcome).final:
            return outcome.with_effects(DeleteIteration(job.iteration))
        return outcome

    def _settle_job(self, job: Delivery, report: Report) -> None:
        """Settle a job, with the effects of its limits."""
        if job.at_end:
            # Not ``with_effects``: the job's own effects may have reached the limit.
            outcome = replace(report.outcome, effects=(*report.outcome.effects, *job.at_end))
            report = report._replace(outcome=outcome)
        self._settle(job, report)


def _leave(job: Delivery) -> None:
    """Note that the job stays in its in-progress list."""
    job.state = DeliveryState.SETTLED


def _left_out(job: Delivery, field: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"[:500]
    about = running.names(job.raw, job.queue)
    log.error("effect.left_out", queue=job.queue, **about, field=field, error=reason)
