"""Losses: decides the outcome of a job whose worker has ended, and describes how the worker ended.

Pure; used by the master: ``endings`` acts on the decision. The retry policy is the same as in the worker,
with the handler's options from the manifest. The master has no user code, so it cannot call ``retry_in``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyworkers.errors import BadMessageError, JobTimeout, WorkerLost
from pyworkers.ipc.control import HandlerFacts, Manifest
from pyworkers.protocol import retry
from pyworkers.protocol.envelope import Rng, new_jid
from pyworkers.protocol.flow.carrying import carried
from pyworkers.protocol.flow.ending import ending_of
from pyworkers.protocol.flow.rules import LeftOut, ended_of_stored, ignore, with_end
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import REQUEUE, Fate, Outcome
from pyworkers.protocol.retry import Failure, Policy


@dataclass(frozen=True, slots=True)
class Losses:
    """Decides on jobs by the application's manifest."""

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
