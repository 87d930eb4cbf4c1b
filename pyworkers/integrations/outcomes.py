"""Outcomes: what observers need of the exceptions of jobs: which drop a job, and which belong to which run.

Used in worker processes. It decides nothing.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Collection
from contextlib import suppress
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from pyworkers import Message, PyworkersError, Worker, WorkerLost
from pyworkers.observing.choices import choice_of
from pyworkers.observing.readable import kind_of
from pyworkers.protocol.message import current_run
from pyworkers.protocol.outcome import Fate


def is_discarded(worker: Worker | None, message: Message, error: BaseException | None) -> bool:
    """True if the handler drops jobs that raise this."""
    if worker is None or error is None or isinstance(error, WorkerLost):
        return False
    with suppress(PyworkersError):
        return worker.lookup(message.queue, message.job_class).fates.of(kind_of(error)) is Fate.DISCARD
    return False


def meaning_of(raised: BaseException) -> BaseException:
    """The request to end (JobTimeout …) that a cancelled task got, or else ``choice_of``."""
    request = raised.args[0] if isinstance(raised, CancelledError) and raised.args else None
    return request if isinstance(request, BaseException) else choice_of(raised)


class Raised(NamedTuple):
    """What a run has raised: its isolation scope, the exception, and the traceback of this run."""

    scope: Any
    error: BaseException
    trace: TracebackType | None


def keep(scope: Any, error: BaseException, links: Collection[CodeType]) -> None:
    """Keep what the run of this context has raised, until the run ends; each run begins in one of ``links``.

    With the run: several jobs may raise one exception object, which cannot keep what is of one. Whether a run
    fails is known only after the links: one of them may turn what it has raised into a success.
    """
    run: Any = current_run()
    run.keep(Raised(scope, error, _of_this_run(error.__traceback__, links)))


def take() -> Raised | None:
    """What the run of this context has raised; None if it was not kept."""
    run: Any = current_run()
    found: Raised | None = run.take()
    return found


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
