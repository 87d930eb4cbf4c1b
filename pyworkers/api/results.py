"""JobResult: where a job is and what it returned, for the program that enqueued it; never its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyworkers.api.browse.lookup import read_job
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.record import STATUS
from pyworkers.api.schemas import ANY
from pyworkers.protocol.flow.track import is_tracked
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Answer, JobState, JobStatus
from pyworkers.store.browse.tracks import read_tracked
from pyworkers.store.calls import Steps
from pyworkers.store.flow.awaiting import ended as ended_jobs
from pyworkers.store.flow.awaiting import note as note_waits

__all__ = ["JOB_RESULT", "JobResult", "ended_jobs", "note_waits", "read_result"]

_BUDGET_S = 0.25


@dataclass(frozen=True, slots=True)
class JobResult:
    """The state of a job, and its result once it is done."""

    jid: str
    status: JobStatus
    tracked: bool
    """False for a job whose result is not kept: a wait for it would not end."""
    answer: Answer | None = None

    @property
    def ended(self) -> bool:
        """True if there is nothing to wait for."""
        return not self.tracked or self.answer is not None or self.status.state.final

    def as_dict(self) -> Mapping[str, Any]:
        """The result for JSON; it is null unless the job is done, and its result is kept."""
        return JOB_RESULT.as_dict(self)


def _returned(found: JobResult, _now: float) -> Any:
    return None if found.answer is None else found.answer.result


JOB_RESULT: Table[JobResult] = Table(
    "JobResult",
    Column("jid"),
    Column("tracked", Kind.FLAG),
    Column("result", Kind.PARTS, value=_returned, schema=ANY),
    *STATUS.within(lambda found: found.status),
)


def read_result(keys: Keys, jid: str) -> Steps[JobResult | None]:
    """The result of a job; None if nothing is known of it.

    A job that is not tracked is looked for, for a moment: it is ``unknown`` if that was too short.
    """
    tracked = yield from read_tracked(keys, jid)
    if tracked.status.state is not JobState.UNKNOWN or tracked.answer is not None:
        return JobResult(jid, _ended(tracked.status, tracked.answer), True, tracked.answer)
    view = yield from read_job(keys, jid, budget_s=_BUDGET_S)
    if view.job is None and view.further is None:
        return None
    # A producer that is not pyworkers writes no status, but its job may be tracked.
    asked = view.job is not None and is_tracked(view.job.fields, jid)
    queue = view.job.queue if view.job is not None else ""
    return JobResult(jid, JobStatus(view.state, queue), asked)


def _ended(status: JobStatus, answer: Answer | None) -> JobStatus:
    """The status with the state of the answer, which is written with the end and perhaps kept longer."""
    if answer is None or status.state is answer.state:
        return status
    error = ": ".join(filter(None, (answer.error_class, answer.error)))
    return replace(status, state=answer.state, error=error or None)
