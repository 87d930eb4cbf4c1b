"""JobLog: the log of a job: what it has written while it ran, and how its runs have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.record import as_text
from pyworkers.api.schemas import OBJECT
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.track import fits
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState, JobStatus
from pyworkers.store.browse.tracks import read_log
from pyworkers.store.calls import Steps

_STATES = frozenset(state.value for state in JobState if state.final)


def fields_text(line: LogLine) -> str:
    """The fields of a line, as ``n=7 name="Ada"``."""
    return " ".join(f"{name}={as_text([value])[1:-1]}" for name, value in line.fields.items())


LOG_LINE: Table[LogLine] = Table(
    "LogLine",
    Column("at", Kind.MOMENT, "When", nullable=True, about="By the clock of the worker."),
    Column("level", title="Level"),
    Column("text", title="Text"),
    Column("fields", Kind.PARTS, value=lambda line, _now: line.fields, schema=OBJECT),
    Column("state", about="The state of the job after a run; empty for a line that the job has written."),
)


@dataclass(frozen=True, slots=True)
class JobLog:
    """The lines of a job's log, the oldest first. ``last`` is the id of the last one, empty without lines."""

    jid: str
    lines: Sequence[LogLine]
    last: str
    status: JobStatus

    @property
    def ended(self) -> bool:
        """True if the job writes no more, as far as its log and its status say."""
        last = self.lines[-1].state if self.lines else ""
        return last in _STATES or self.status.state.final

    def as_dict(self) -> Mapping[str, Any]:
        """The log for JSON."""
        return JOB_LOG.as_dict(self)


JOB_LOG: Table[JobLog] = Table(
    "JobLog",
    Column("jid"),
    Column("state", value=lambda log, _now: log.status.state),
    Column("last"),
    Column("lines", Kind.RECORDS, table=LOG_LINE),
)


def read_joblog(keys: Keys, jid: str, after: str = "") -> Steps[JobLog | None]:
    """The lines of a log behind the one with the id ``after``; None if nothing is known of the job."""
    if not fits(jid):
        return None
    found, status = yield from read_log(keys, jid, after)
    if not found and not after and status.state is JobState.UNKNOWN:
        return None
    return JobLog(jid, [line for _, line in found], found[-1][0] if found else after, status)
