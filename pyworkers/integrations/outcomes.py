"""Outcomes: what observers need of the exceptions of jobs: which drop a job, and which belong to which run.

Used in worker processes. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from pyworkers import Message, PyworkersError, Worker, WorkerLost
from pyworkers.observing.readable import kind_of
from pyworkers.protocol.outcome import Fate

# A run that does not fail leaves what it has raised: its outcome is known only after the links.
_MOST_KEPT = 100


def is_discarded(worker: Worker | None, message: Message, error: BaseException | None) -> bool:
    """True if the handler drops jobs that raise this."""
    if worker is None or error is None or isinstance(error, WorkerLost):
        return False
    with suppress(PyworkersError):
        return worker.lookup(message.queue, message.job_class).fates.of(kind_of(error)) is Fate.DISCARD
    return False


class Raised(NamedTuple):
    """What a run has raised: its isolation scope, the exception, and the traceback of this run."""

    raw: bytes
    scope: Any
    error: BaseException
    trace: TracebackType | None


class RaisedByRuns:
    """What the runs have raised that are not reported yet.

    By the bytes of the job: several jobs may raise one exception object, which cannot keep what is of one.
    """

    def __init__(self) -> None:
        self._by_job: dict[int, Raised] = {}

    def keep(self, message: Message, scope: Any, error: BaseException, links: Collection[CodeType]) -> None:
        """Keep what a run has raised; each run begins in one of ``links``."""
        trace = _of_this_run(error.__traceback__, links)
        self._by_job[id(message.raw)] = Raised(message.raw, scope, error, trace)
        while len(self._by_job) > _MOST_KEPT:
            self._by_job.pop(next(iter(self._by_job), 0), None)

    def take(self, message: Message) -> Raised | None:
        """What the run has raised; None if it was not kept."""
        found = self._by_job.pop(id(message.raw), None)
        return found if found is not None and found.raw is message.raw else None


def _of_this_run(trace: TracebackType | None, links: Collection[CodeType]) -> TracebackType | None:
    """The traceback without the frames of an earlier run, which an exception keeps that is raised again."""
    entries: list[TracebackType] = []
    one = trace
    while one is not None and not (entries and one.tb_frame.f_code in links):
        entries.append(one)
        one = one.tb_next
    if one is None:
        return trace
    found: TracebackType | None = None
    for entry in reversed(entries):
        found = TracebackType(found, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return found
