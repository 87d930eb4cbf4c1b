"""Settling: the end of each job of a group, whether it ended, was cancelled, or was lost with its worker.

Runs in the master's event loop. ``Endings`` acts: it passes the outcome on, and logs the jobs that no worker
could log. ``Rules`` decides on a lost job, and is pure: the retry policy is the worker's, with the options
of the handler from the manifest. The master has no user code, so it cannot call ``retry_in``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

from pyworkers import logs
from pyworkers.errors import BadMessageError, JobTimeout, WorkerLost
from pyworkers.ipc.control import HandlerFacts, Manifest
from pyworkers.protocol import retry
from pyworkers.protocol.effects import DeleteIteration
from pyworkers.protocol.envelope import Rng, new_jid
from pyworkers.protocol.flow.carrying import carried
from pyworkers.protocol.flow.ending import ending_of
from pyworkers.protocol.flow.rules import LeftOut, ended_of_stored, ignore, with_end
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import BURIED, CANCELLED, REQUEUE, Fate, Loss, Outcome, Report
from pyworkers.protocol.retry import Failure, Policy
from pyworkers.server import running
from pyworkers.server.pool.delivery import Delivery

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
        rules: Rules,
        count: Callable[[int], None],
    ) -> None:
        self._settle = settle
        self._count = count
        self._hand_back = hand_back
        self._rules = rules

    def decide_by(self, rules: Rules) -> None:
        """Decide on all lost jobs by these declarations, which are from the current generation."""
        self._rules = rules

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
                job.settled()

        def leave_all(jobs: list[Delivery]) -> None:
            for job in jobs:
                job.settled()

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
            job.settled()

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
            failure = timed_out(job.timed_out_s)
        outcome, about = self._rules.outcome(job.queue, job.raw, failure)
        event = "job.timeout" if job.timed_out_s else "job.failed"
        log.error(event, queue=job.queue, outcome=outcome.fate.name.lower(), **about)
        name = self._rules.handler_name(job.queue, str(about.get("job_class", "")))
        self._settle_unreported(job, Report(outcome, job_class=name))
        # An invalid job goes to ``dead``, but it did not fail, and it has no hooks.
        if not (outcome.final or (outcome.failed and self._rules.reports)):
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
            job.settled()
            log.exception("job.unsettled", queue=job.queue, fate="none")

    def _settle_unreported(self, job: Delivery, report: Report) -> None:
        """Settle a job whose worker has not computed the effects of its end."""
        outcome = self._with_effects(job, report.outcome)
        self._settle_job(job, report._replace(outcome=outcome))

    def _with_effects(self, job: Delivery, outcome: Outcome) -> Outcome:
        outcome = self._rules.ended(job.queue, job.raw, outcome, partial(_left_out, job))
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


def _left_out(job: Delivery, field: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}"[:500]
    about = running.names(job.raw, job.queue)
    log.error("effect.left_out", queue=job.queue, **about, field=field, error=reason)


@dataclass(frozen=True, slots=True)
class Rules:
    """What becomes of a lost job, by the manifest of the application."""

    manifest: Manifest
    max_retries: int
    clock: Callable[[], float]
    rng: Rng

    def outcome(self, queue: str, raw: bytes, failure: Failure) -> tuple[Outcome, dict[str, object]]:
        """The outcome, and the fields of its log event."""
        try:
            message = Message.parse(raw, queue, lambda: new_jid(self.rng))
        except BadMessageError as error:
            payload = retry.refused(raw, error.message, queue, self.clock())
            outcome = Outcome(Fate.DEAD, payload=payload)
            return outcome, {"error_class": "BadMessageError", "error": error.message}
        declared = self._declared(queue, message.job_class)
        if declared and "overdue" in declared and failure.error_class == JobTimeout.__name__:
            failure = replace(failure, fate=Fate(declared["overdue"]))
        outcome = retry.decide(message, failure, self._policy(declared), self.clock(), self.rng)
        about: dict[str, object] = {
            "jid": message.jid,
            "job_class": message.job_class,
            "attempt": message.attempt,
        }
        if names := self.manifest.get("carry"):
            about |= carried(message.data, names)
        if failure.crashed and failure.fate is None:
            about["crash_count"] = retry.crash_number(message)
        if outcome.fate is Fate.RETRY:
            about["retry_at"] = outcome.at
        return outcome, about | {"error_class": failure.error_class, "error": failure.error_message}

    def ended(self, queue: str, raw: bytes, outcome: Outcome, left_out: LeftOut = ignore) -> Outcome:
        """The outcome with the effects that the fields of the envelope ask for; see ``with_end``."""
        if outcome is REQUEUE:
            outcome = retry.given_back(raw)
        ended = ended_of_stored(
            raw,
            ending_of(outcome),
            self.clock(),
            queue,
            error_class=outcome.error_class,
            error_message=outcome.error_message,
        )
        return outcome if ended is None else with_end(outcome, ended, left_out)

    @property
    def reports(self) -> bool:
        """True if the application has error handlers, which are called for each lost job."""
        return bool(self.manifest["hooks"].get("on_error"))

    def handler_name(self, queue: str, job_class: str) -> str:
        """The name of the handler for jobs of this class in this queue; empty if there is none."""
        declared = self._declared(queue, job_class)
        return declared["name"] if declared else ""

    def _declared(self, queue: str, job_class: str) -> HandlerFacts | None:
        owned = self.manifest["queues"].get(queue)
        if owned is not None and owned["kind"] == "process":
            return owned
        return self.manifest["jobs"].get(job_class)

    def _policy(self, declared: HandlerFacts | None) -> Policy:
        if declared is None:
            return Policy(max_retries=self.max_retries)
        retry, dead, retry_for = declared["retry"], declared["dead"], declared.get("retry_for")
        return Policy(retry, dead, max_retries=self.max_retries, retry_for=retry_for)


def timed_out(limit_s: float) -> Failure:
    """The failure of a job that did not end within its limit and was killed: counted like an exception."""
    return Failure(JobTimeout.__name__, f"killed: still running after its limit of {limit_s:g} s")


def died(reason: str, rss_kb: int) -> Failure:
    """The failure of a job whose worker ended before it; ``reason`` as from ``describe``."""
    return Failure(WorkerLost.__name__, f"the worker {reason}{_peak(rss_kb)}", crashed=True)


def describe(status: int | None, fault: str = "", oom: Callable[[], bool] = lambda: False) -> str:
    """Describes a status of waitpid; ``fault`` is the reason if the master has killed the worker.

    ``oom`` is called for a SIGKILL without a fault: True if the system may have killed it for lack of memory.
    """
    if status is None:
        return fault or "ended"
    if not os.WIFSIGNALED(status):
        return f"exited with status {os.waitstatus_to_exitcode(status)}"
    number = os.WTERMSIG(status)
    if fault and number == signal.SIGKILL:
        return fault
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    hint = ", perhaps for lack of memory" if number == signal.SIGKILL and oom() else ""
    return f"was killed by {name}{hint}"


def _peak(rss_kb: int) -> str:
    return f"; its peak memory was {rss_kb / 1024:.0f} MB" if rss_kb else ""
