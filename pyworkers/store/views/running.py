"""Running: reads one page of the running jobs, the longest first; their progress, and their workers' memory.

Used by ``api``; never by the server. All running jobs are read, because Redis keeps them in no order; only
the ones of the page are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap

from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import FIELDS, JobState, JobStatus, read_status
from pyworkers.store.calls import Mode, Steps, command, every
from pyworkers.store.processes.decoding import work_view
from pyworkers.store.processes.reading import stored_works
from pyworkers.store.processes.views import WorkView
from pyworkers.store.queues import first_jobs
from pyworkers.store.stats import read_owners
from pyworkers.store.views.servers import identities, read_workers

MOST = 5000
"""This many running jobs are sorted for a page, in some 20 ms; jobs of other servers are left out."""
_PER_ROUND_TRIP = 50
# Every program writes ``run_at`` last; pyworkers writes ``limit_at`` after it.
_RUN_AT = re.compile(rb'"run_at"\s*:\s*"?([0-9.]{1,20})')
_END = 100


@dataclass(frozen=True, slots=True)
class StoredWork:
    """A running job, not decoded."""

    identity: str
    thread: bytes
    value: bytes

    @property
    def run_at(self) -> float:
        """The start in epoch seconds; 0 if unknown."""
        found = _RUN_AT.findall(self.value[-_END:])
        if found and (seconds := timestamps.read(found[-1].decode())) is not None:
            return seconds
        view = work_view(self.identity, self.thread, self.value)
        return view.run_at if view else 0.0


@dataclass(frozen=True, slots=True)
class RunningView:
    """Some of the running jobs. ``total`` were read; these are not ``complete`` if more run than are read."""

    total: int
    works: list[WorkView]
    complete: bool = True


def read_running(
    keys: Keys, first: int, count: int | None, identity: str = "", most: int = MOST
) -> Steps[RunningView]:
    """The jobs from rank ``first`` on, by their start; with ``identity``, of one server."""
    names = [identity] if identity else (yield from identities(keys))
    found: list[StoredWork] = []
    begin = 0
    while begin < len(names) and len(found) < most:
        stored = yield from stored_works(keys, names[begin : begin + _PER_ROUND_TRIP])
        found += starmap(StoredWork, stored)
        begin += _PER_ROUND_TRIP
    found.sort(key=lambda stored: (stored.run_at, stored.identity, stored.thread))
    chosen = found[first:] if count is None else found[first : first + count]
    views = (work_view(stored.identity, stored.thread, stored.value) for stored in chosen)
    return RunningView(len(found), [view for view in views if view is not None], begin >= len(names))


def read_held(keys: Keys, identity: str, most: int) -> Steps[RunningView]:
    """The jobs in the in-progress lists of a server, for one whose own list of running jobs has expired."""
    owners = yield from read_owners(keys)
    lists = {keys.inprogress(queue, identity): queue for queue in sorted(owners.get(identity, ()))}
    sizes = yield from every([command("LLEN", key) for key in lists], Mode.LENIENT)
    held = yield from first_jobs(lists, most)
    works = [WorkView(identity, "", lists[key], 0, payload) for key, payload in held]
    return RunningView(sum(size or 0 for size in sizes), works)


def read_statuses(keys: Keys, jids: Sequence[str]) -> Steps[dict[str, JobStatus]]:
    """The statuses of the tracked ones of these jobs."""
    reads = [command("HMGET", keys.job(jid), *FIELDS) for jid in jids]
    stored = yield from every(reads, Mode.LENIENT)
    found = {jid: read_status(values) for jid, values in zip(jids, stored, strict=True) if values}
    return {jid: status for jid, status in found.items() if status.state is not JobState.UNKNOWN}


def read_memory(keys: Keys, owners: Iterable[str]) -> Steps[dict[tuple[str, str], int]]:
    """The memory in KiB of the worker processes of these servers, by identity and pid."""
    workers = yield from read_workers(keys, list(dict.fromkeys(owners)))
    return {
        (identity, str(worker.pid)): worker.rss_kb for identity, those in workers.items() for worker in those
    }
