"""Stacks: describes where a job is: which threads of its process run it, and what its tasks wait for.

Runs in the main thread of the worker process, only when the master asks. The stacks of the threads are not
here: faulthandler has written them, from C (hygiene.py), before the master asks for this.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from pyworkers.ipc.stacks import DESCRIBED, MOST_BYTES
from pyworkers.worker.execution import Execution

Task = asyncio.Task[Any]
# Frames of one task, and tasks: as many as faulthandler shows of threads.
_MOST = 100
_OURS = __name__.partition(".")[0]


class JobPlace(NamedTuple):
    """Where a runner has a job: its run, None if it does not run any more; and more, by the mode."""

    execution: Execution | None
    task: Task | None = None
    """The task of a job that shares its loop with others. Without it, a job has all tasks of its loop."""
    here: bool = False
    """True for a job in the main thread."""


def described(place: JobPlace) -> bytes:
    """The threads and the tasks of a job, as ``ipc.stacks`` reads them."""
    task = place.task
    threads, tasks = ({}, []) if place.execution is None else _found(place.execution, here=place.here)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = [f"Thread {ident:#x} {names.get(ident, '')}" for ident in threads]
    for one in [task] if task is not None else tasks[:_MOST]:
        lines += [f"Task {one.get_name()}", *_lines_of(one)]
    return (DESCRIBED + "\n".join(lines))[:MOST_BYTES].encode(errors="backslashreplace")


def _found(execution: Execution, *, here: bool) -> tuple[dict[int, None], list[Task]]:
    """The threads of a job, and the tasks of the loops that they run for it."""
    threads: dict[int, None] = {}
    tasks: dict[Task, None] = {}
    for ident, frame in sys._current_frames().items():
        values = list(_values(frame))
        # This code, in the main thread, has the job as well.
        is_here = ident == threading.get_ident()
        has_job = any(value is execution or value is execution.message for value in values)
        if here if is_here else has_job:
            threads[ident] = None
            for value in values:
                if isinstance(value, asyncio.Task):
                    tasks |= dict.fromkeys(asyncio.all_tasks(value.get_loop()))
    return threads, list(tasks)


def _values(frame: FrameType | None) -> Iterator[object]:
    """The values in the variables of pyworkers in a stack. To note the thread of each job would cost time."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
            yield from frame.f_locals.values()
        frame = frame.f_back


def _lines_of(task: Task) -> list[str]:
    """The frames of a task, the most recent call first, as faulthandler writes them of a thread."""
    awaited: Any = task.get_coro()
    lines: list[str] = []
    # A coroutine, a generator, or an asynchronous one: cr_frame, gi_frame, ag_frame.
    while awaited is not None and len(lines) < _MOST:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(awaited, f"{kind}_frame")), "")
        if not kind:
            break
        if (frame := getattr(awaited, f"{kind}_frame")) is not None:
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno} in {code.co_name}')
        awaited = getattr(awaited, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
    return lines[::-1]
