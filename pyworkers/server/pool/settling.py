"""Settling: the end of each job of a group, whether it ended, was cancelled, or was lost with its worker.

Runs in the master's event loop. ``Settling`` acts: it makes the report of a job that no worker reports, logs
it, and adds what each step of an end adds. ``Rules`` decides on a lost job, and is pure: the retry policy is
the worker's, with the options of the handler from the manifest. The master has no user code, so it cannot
call ``retry_in``.

    report of a worker ───────────────────────────────► steps: limits, an ordered queue, marks ──► outbox.py
    cause ──► report ──► steps: flow, checkpoints ──┘
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeAlias

from pyworkers import logs
from pyworkers.errors import BadMessageError, JobTimeout, WorkerLost, text_with_class
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
from pyworkers.server.pool.outbox import Outbox

log = logs.get_logger()
Step: TypeAlias = Callable[[Delivery, Report], Report]
"""What an end adds to the report of its job."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Its cancellation was requested, and it did not end by itself; ``killed``: it had begun."""

    killed: bool = False
    instead: ClassVar[Outcome] = BURIED


@dataclass(frozen=True, slots=True)
class Left:
    """It is given back with its in-progress list, by this server or by a peer; ``killed``: it had begun."""

    killed: bool = False
    instead: ClassVar[Outcome] = REQUEUE


@dataclass(frozen=True, slots=True)
class Untaken:
    """No worker has taken it."""

    instead: ClassVar[Outcome] = REQUEUE


@dataclass(frozen=True, slots=True)
class Bystander:
    """Its process has ended because of another job. It does not count as an attempt."""

    instead: ClassVar[Outcome] = REQUEUE


@dataclass(frozen=True, slots=True)
class Lost:
    """Its process has ended because of it, or its servers have."""

    failure: Failure
    instead: ClassVar[Outcome] = BURIED


@dataclass(frozen=True, slots=True)
class PutOff:
    """It is in ``schedule``, or gone: its limits have decided so."""

    instead: ClassVar[Outcome] = REQUEUE


Cause: TypeAlias = CancelRequested | Left | Untaken | Bystander | Lost | PutOff
"""Why a job ends without a report of its worker; ``instead`` is its outcome if settling it fails."""


class Settling:
    """Settles the jobs of one group into its ``outbox``.

    ``marked`` is the step of jobs with a mark (suspects.py), ``in_place`` the step of an ordered queue.
    ``count`` is called with the number of jobs that run again because their process has ended.
    """

    def __init__(
        self,
        outbox: Outbox,
        rules: Rules,
        count: Callable[[int], None],
        marked: Step,
        in_place: Step | None = None,
    ) -> None:
        self._outbox = outbox
        self._rules = rules
        self._count = count
        self._leaving = False
        self.unreported: tuple[Step, ...] = (self._add_flow, _drop_checkpoint)
        """The steps of a job whose worker has not computed the effects of its end; then come ``steps``."""
        self.steps: tuple[Step, ...] = (_free_limits, *((in_place,) if in_place else ()), marked)
        """The steps of every job."""
        self._direct = in_place is None
        """True if no step changes the report of a plain job."""

    def decide_by(self, rules: Rules) -> None:
        """Decide on all lost jobs by these rules, which are from the current generation."""
        self._rules = rules

    def leave(self) -> None:
        """Leave requeued jobs in the in-progress list from now on: a stop gives back all of it, in order.

        Those with effects or with another payload are settled, because the list gives them back without.
        """
        self._leaving, self._direct = True, False

    def ended(self, job: Delivery, report: Report) -> None:
        """Settle a job that ran to its end.

        If its cancellation was requested and it is not done, it counts as cancelled, and is not retried.
        """
        try:
            if job.plain and self._direct:
                self._outbox.settle(job, report)
            else:
                self._pass_on(job, self._instead(job, report) if job.cancelled else report)
        except Exception:
            self._failed(job, BURIED)

    def settle(self, job: Delivery, cause: Cause) -> Report | None:
        """Settle a job that its worker does not report. Returns its report; None if it has none.

        The bytes of a job are a producer's: an error because of them ends that job alone.
        """
        if job.cancelled and isinstance(cause, Left | Lost):
            cause = CancelRequested(killed=True)
        try:
            report = self._decide(job, cause)
            if report is None:
                job.settled()
            else:
                self._pass_on(job, report)
            return report
        except Exception:
            self._failed(job, cause.instead)
            return None

    def give_back(self, jobs: list[Delivery]) -> None:
        """Give back jobs that no worker has taken, the oldest first, without a line in the log for each."""
        plain = [job for job in jobs if not job.at_end]
        if self._leaving:
            for job in plain:
                job.settled()
        else:
            self._outbox.give_back(plain)
        for job in reversed(jobs):
            if job.at_end:
                self.settle(job, Untaken())

    def suspected(self, job: Delivery) -> None:
        """Log a job that is to run alone, because its process was lost with several jobs in it."""
        log.warning("job.suspected", queue=job.queue, **running.names(job.raw, job.queue))
        self._interrupted()

    def _interrupted(self) -> None:
        # A stop counts what it gives back.
        if not self._leaving:
            self._count(1)

    # The report of each cause

    def _decide(self, job: Delivery, cause: Cause) -> Report | None:
        """The report of a job; None if it stays in the in-progress list."""
        match cause:
            case Lost(failure):
                return self._add_all(job, self._lost(job, failure))
            case CancelRequested(killed):
                _log_cancelled(job, **_killed(killed))
                return self._add_all(job, Report(CANCELLED, cancelled=job.cancelled))
            case Bystander():
                log_interrupted(job, killed=True)
                self._interrupted()
                return self._add_all(job, Report(REQUEUE))
            case Left(killed):
                log_interrupted(job, **_killed(killed))
                return Report(REQUEUE) if job.at_end else None
            case Untaken():
                return Report(REQUEUE)
            case PutOff():
                return None

    def _lost(self, job: Delivery, failure: Failure) -> Report:
        if job.timed_out_s:
            failure = timed_out(job.timed_out_s)
        outcome, about = self._rules.outcome(job.queue, job.raw, failure)
        event = "job.timeout" if job.timed_out_s else "job.failed"
        log.error(event, queue=job.queue, outcome=outcome.fate.name.lower(), **about)
        # An invalid job goes to ``dead``, but it did not fail, and it has no hooks.
        if outcome.final or (outcome.failed and self._rules.reports):
            job.lose(Loss(job.raw, str(about["jid"]), outcome))
        return Report(outcome, job_class=self._rules.handler_name(job.queue, str(about.get("job_class", ""))))

    def _instead(self, job: Delivery, report: Report) -> Report:
        """The report of a job whose cancellation was requested."""
        outcome = report.outcome
        if outcome.fate not in (Fate.DONE, Fate.CANCELLED):
            _log_cancelled(job, instead_of=outcome.fate.name.lower())
            report = self._add_all(job, report._replace(outcome=CANCELLED))
        return report._replace(cancelled=job.cancelled)

    def _failed(self, job: Delivery, instead: Outcome) -> None:
        """Settle a job whose own end has failed, as it is stored; called while that error is handled.

        If this fails as well, the job stays in its in-progress list, where this server finds it again.
        """
        log.exception("job.unsettled", queue=job.queue, fate=instead.fate.name.lower())
        try:
            self._pass_on(job, Report(instead, cancelled=job.cancelled))
        except Exception:
            job.settled()
            log.exception("job.unsettled", queue=job.queue, fate="none")

    # The steps

    def _pass_on(self, job: Delivery, report: Report) -> None:
        """Take the steps of every job, and add it to the outbox."""
        outcome = report.outcome
        bare = not (outcome.effects or outcome.payload or job.at_end)
        if self._leaving and outcome.fate is Fate.REQUEUE and bare:
            job.settled()
            return
        for step in self.steps:
            report = step(job, report)
        self._outbox.settle(job, report)

    def _add_all(self, job: Delivery, report: Report) -> Report:
        for step in self.unreported:
            report = step(job, report)
        return report

    def _add_flow(self, job: Delivery, report: Report) -> Report:
        """Add the effects that fields of the envelope ask for: the effects of batches, chains and so on."""
        outcome = self._rules.ended(job.queue, job.raw, report.outcome, partial(_left_out, job))
        return report._replace(outcome=outcome)


def _drop_checkpoint(job: Delivery, report: Report) -> Report:
    """Delete the checkpoint of a job that does not run again."""
    if job.iteration and ending_of(report.outcome).final:
        return report._replace(outcome=report.outcome.with_effects(DeleteIteration(job.iteration)))
    return report


def _free_limits(job: Delivery, report: Report) -> Report:
    """Add the effects of the limits."""
    if not job.at_end:
        return report
    # Not ``with_effects``: the job's own effects may have reached the limit.
    outcome = replace(report.outcome, effects=(*report.outcome.effects, *job.at_end))
    return report._replace(outcome=outcome)


def log_interrupted(job: Delivery, **about: object) -> None:
    """Log a job that is given back; its worker does not log it."""
    log.warning("job.interrupted", queue=job.queue, **running.names(job.raw, job.queue), **about)


def _log_cancelled(job: Delivery, **about: object) -> None:
    named = {**running.names(job.raw, job.queue), "jid": job.cancelled}
    log.info("job.cancelled", queue=job.queue, **named, **about)


def _killed(killed: bool) -> dict[str, object]:
    return {"killed": True} if killed else {}


def _left_out(job: Delivery, field: str, error: Exception) -> None:
    reason = text_with_class(error)[:500]
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
    """The failure of a job whose worker ended before it; ``reason`` as from ``describe`` (worker.py)."""
    return Failure(WorkerLost.__name__, f"the worker {reason}{_peak(rss_kb)}", crashed=True)


def _peak(rss_kb: int) -> str:
    return f"; its peak memory was {rss_kb / 1024:.0f} MB" if rss_kb else ""
