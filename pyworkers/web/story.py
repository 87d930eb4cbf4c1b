"""Story: what has happened to a job and what comes next; tracebacks with the frames of libraries apart.

Pure: from the envelope, the status, the history and the log, which the page of the job has read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from typing import NamedTuple

from pyworkers.api.browse.lookup import JobView
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED
from pyworkers.api.record import JobRecord
from pyworkers.protocol import timestamps
from pyworkers.protocol.flow.history import MAX_TRACEBACK, JobRun
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.retry import first_failure
from pyworkers.protocol.status import JobState

_MOST_RUNS = 100
# The runs that have their traceback: 20 KB each.
_MOST_TRACEBACKS = 10
_LIBRARY = re.compile(
    r"[/\\](site-packages|dist-packages|lib[/\\](python|ruby)[^/\\]*|gems|node_modules)[/\\]|^<frozen "
)
# A line of ``error_backtrace``, of Python and of Ruby.
_PLACE = re.compile(r"(.+?):\d+:in ")
_ENDS = {
    JobState.DONE: ("Done", "good"),
    JobState.FAILED: ("Failed for good", "bad"),
    JobState.DEAD: ("Dead", "bad"),
    JobState.CANCELLED: ("Cancelled", "warn"),
    JobState.EXPIRED: ("Expired", "warn"),
}


class Frames(NamedTuple):
    """Successive frames of a traceback, of libraries or of the application."""

    library: bool
    number: int
    text: str


class Event(NamedTuple):
    """A line of the timeline. ``at`` is in epoch seconds, None if it is not known."""

    what: str
    at: float | None = None
    tone: str = ""
    note: str = ""
    server: str = ""
    """The identity of a server."""
    worker: str = ""
    took_s: float | None = None
    error: str = ""
    traceback: Sequence[Frames] = ()


def story(view: JobView, known: JobRecord | None, log: Sequence[LogLine]) -> list[Event]:
    """The events of a job, the oldest first; then what comes next.

    ``known``: the job, or what is kept of it.
    """
    history = view.tracked.history
    runs = list(history.runs) if history else []
    past = [*_runs(view, runs, log)] if runs else [*_last_run(view, known)]
    events = [*_entered(view, known, past), *past, *_end(view)]
    return [*sorted(events, key=lambda event: inf if event.at is None else event.at), *_next(view)]


def frames_of(text: str) -> list[Frames]:
    """The frames of a traceback; frames of libraries are apart if one of the application is there."""
    if not text:
        return []
    # The message at the end of a printed traceback can look like a line of the other form.
    marked = list(_marked(text.split("\n"), _printed_path if '  File "' in text else _path))
    if not any(begins and not library for library, begins, _ in marked):
        return [Frames(False, sum(begins for _, begins, _ in marked), text)]
    return [_frames(library, list(some)) for library, some in groupby(marked, lambda line: line[0])]


def _frames(library: bool, some: list[tuple[bool, bool, str]]) -> Frames:
    return Frames(library, sum(begins for _, begins, _ in some), "\n".join(line for _, _, line in some))


def _marked(lines: Iterable[str], path_of: Callable[[str], str]) -> Iterator[tuple[bool, bool, str]]:
    """Of each line: if it is of a library, if a frame begins with it, and its text."""
    library = False
    for line in lines:
        before, bar, rest = line.partition("|")
        # In a group of exceptions, a bar is before each line.
        printed = rest[1:] if bar and not before.strip() else line
        path = path_of(printed)
        # The code of a frame is below it, indented further.
        if path or not printed.startswith(("    ", "  [Previous line")):
            library = bool(path and _LIBRARY.search(path))
        yield library, bool(path), line


def _printed_path(line: str) -> str:
    """The file of a frame as Python prints it; empty for any other line."""
    return line.partition('"')[2].partition('"')[0] if line.lstrip().startswith('File "') else ""


def _path(line: str) -> str:
    """The file of a frame of ``error_backtrace``; empty for any other line."""
    place = _PLACE.match(line)
    return place[1] if place else ""


def _entered(view: JobView, known: JobRecord | None, past: Sequence[Event]) -> Iterator[Event]:
    """When the job was created, and when it entered its queue: the first time and the last one."""
    history = view.tracked.history
    created = known.created_at if known else None
    first = timestamps.read(history.job.get("enqueued_at")) if history else None
    last = known.enqueued_at if known else None
    together = created is not None and created in (first, last)
    if created is not None:
        yield Event("Created and enqueued" if together else "Created", created)
    if first is not None and first != created:
        yield Event("Enqueued", first)
    if last is not None and last not in (created, first):
        again = first is not None or any(event.at is not None and event.at < last for event in past)
        yield Event("Enqueued again" if again else "Enqueued", last)


def _runs(view: JobView, runs: Sequence[JobRun], log: Sequence[LogLine]) -> Iterator[Event]:
    """The runs that the history has, the last of them with the server that runs it."""
    ends = [line.at for line in log if line.state and line.at is not None]
    if view.tracked.status.finished_at is not None:
        ends.append(view.tracked.status.finished_at)
    shown = runs[-_MOST_RUNS:]
    for index, run in enumerate(shown):
        is_last = index == len(shown) - 1
        until = inf if is_last else shown[index + 1].started_at
        held = view.held if is_last else None
        error = ": ".join(filter(None, (run.error_class, run.error)))
        with_traceback = run.traceback and index >= len(shown) - _MOST_TRACEBACKS
        yield Event(
            f"Run {run.number + 1}",
            run.started_at,
            "bad" if error else "",
            "failed" if error else "runs now" if held else "",
            held.identity if held else "",
            run.worker,
            None if held else _took_s(run.started_at, until, ends),
            error,
            frames_of(run.traceback[-MAX_TRACEBACK:]) if with_traceback else (),
        )


def _took_s(started_at: float | None, until: float | None, ends: Sequence[float]) -> float | None:
    """How long a run took, by the first end after its start and before the next one."""
    if started_at is None or until is None:
        return None
    return min((end - started_at for end in ends if started_at <= end <= until), default=None)


def _last_run(view: JobView, known: JobRecord | None) -> Iterator[Event]:
    """Without a history: the first failure and the last one, and the last run."""
    if known and known.failed_at is not None:
        first = first_failure(known.data.get)
        count = 0 if known.retry_count is None else known.retry_count + 1
        if first is not None and first < known.failed_at:
            yield Event("Failed for the first time", first, "bad")
        yield Event("Failed", known.failed_at, "bad", f"failure {count:,}" if count > 1 else "")
    held, status = view.held, view.tracked.status
    if held is not None and held.run_at:
        yield Event("Runs", held.run_at, "", "", held.identity, held.thread)
    elif status.started_at is not None:
        ends = [] if status.finished_at is None else [status.finished_at]
        yield Event("Last run", status.started_at, took_s=_took_s(status.started_at, inf, ends))


def _end(view: JobView) -> Iterator[Event]:
    if view.place == DEAD and view.row is not None:
        yield Event("Dead", view.row.score, "bad", "kept among the dead jobs")
    elif view.job is None and view.tracked.status.state in _ENDS:
        what, tone = _ENDS[view.tracked.status.state]
        yield Event(what, view.tracked.status.finished_at, tone)


def _next(view: JobView) -> Iterator[Event]:
    if view.row is None:
        return
    if view.place in (SCHEDULED, RETRIES):
        yield Event("Next: retry" if view.place == RETRIES else "Next: due", view.row.score)
    elif view.place is not None and view.place.queue:
        yield Event("Next: run", note="when it is first in its queue" if view.row.index else "as the first")
