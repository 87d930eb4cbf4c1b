"""ProcessSet and WorkSet: the servers on this Redis, Sidekiq's included, and their running jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pyworkers.api.groups import GroupStats
from pyworkers.api.record import JobRecord, valid
from pyworkers.api.target import Where, admin_of
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.store import processes
from pyworkers.store.admin import Admin
from pyworkers.store.processes import Processes, ProcessView, Works, WorkView

# The pause between two checks whether the servers have answered.
_ANSWER_S = 0.02


class Process:
    """One server, as of its last heartbeat; ``about`` holds all its fields."""

    def __init__(self, about: ProcessView, admin: Admin) -> None:
        self.about = about
        self._admin = admin

    def __repr__(self) -> str:
        return f"Process({self.identity!r})"

    @property
    def identity(self) -> str:
        """The unique name of the server: host, process id and nonce."""
        return self.about.identity

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the server takes jobs from."""
        return self.about.queues

    @property
    def busy(self) -> int:
        """The number of its running jobs."""
        return self.about.busy

    @property
    def concurrency(self) -> int:
        """The number of jobs that it can run at a time."""
        return self.about.concurrency

    @property
    def stopping(self) -> bool:
        """True if the server is quiet or stopping."""
        return self.about.quiet

    def as_dict(self) -> dict[str, Any]:
        """The server for JSON; times are in epoch seconds."""
        return describe(self.about)

    def silent(self, now: float) -> bool:
        """True without a heartbeat for a minute: go-workers2's descriptions remain after an exit."""
        return self.about.silent(now)

    def quiet(self) -> None:
        """Signal the server to take no more jobs; it reacts within 10 s. Raises PyworkersError."""
        self._signal(processes.QUIET)

    def stop(self) -> None:
        """Signal the server to stop; it reacts within 10 s. Raises PyworkersError."""
        self._signal(processes.STOP)

    def dump_threads(self) -> None:
        """Signal the server to log the stacks of its running jobs. Raises PyworkersError."""
        self._signal(processes.DUMP)

    def _signal(self, word: str) -> None:
        if self.about.embedded:
            raise PyworkersError(f"{self.identity} is embedded in another program: quiet or stop it there")
        self._admin.run(processes.signal(self._admin.keys, self.identity, word))


class ProcessSet:
    """The live servers, in no order. All methods raise RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)
        self._may_watch = True

    def __iter__(self) -> Iterator[Process]:
        return (Process(about, self._admin) for about in self._admin.each(Processes(self._admin.keys)))

    def refresh(self, timeout: float = 1.5) -> None:
        """Request that pyworkers servers write their counters and jobs now, and each second for the next ten.

        Returns when all have done so, at most ``timeout`` seconds later. Returns at once if the user may not
        write to Redis: then the numbers are those of the last heartbeat. Raises RedisUnavailableError.
        """
        if self._may_watch:
            try:
                look = self._admin.run(processes.watch(self._admin.keys))
            except StoreError:
                self._may_watch = False
            else:
                deadline = time.monotonic() + timeout
                while not self._have_answered(look) and time.monotonic() < deadline:
                    time.sleep(_ANSWER_S)

    def _have_answered(self, look: int) -> bool:
        return self._admin.run(processes.answered(self._admin.keys, look))

    @property
    def size(self) -> int:
        """The number of registered servers; a few of them may have crashed."""
        return self._admin.run(processes.registered(self._admin.keys))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def find(self, identity: str) -> Process | None:
        """The server with that identity; None if there is none."""
        return next((process for process in self if process.identity == identity), None)

    @property
    def leader(self) -> str:
        """The identity of Sidekiq Enterprise's leader; empty if there is none."""
        return self._admin.run(processes.leader(self._admin.keys))

    def cleanup(self) -> int:
        """Remove crashed processes, at most once a minute for all callers; returns their number."""
        return len(self._admin.run(processes.cleanup(self._admin.keys)))


def describe(about: ProcessView) -> dict[str, Any]:
    """A server for JSON."""
    return {
        "identity": valid(about.identity),
        "hostname": about.hostname,
        "pid": about.pid,
        "tag": about.tag,
        "version": about.version,
        "started_at": about.started_at,
        "beat": about.beat,
        "busy": about.busy,
        "concurrency": about.concurrency,
        "rss_kb": about.rss_kb,
        "rtt_us": about.rtt_us,
        "quiet": about.quiet,
        "embedded": about.embedded,
        "queues": list(about.queues),
        "labels": list(about.labels),
        "groups": [GroupStats.of([group]).as_dict() for group in about.groups],
    }


class Work(JobRecord):
    """One running job, as its server reported it last."""

    def __init__(self, about: WorkView) -> None:
        super().__init__(about.payload)
        self.about = about

    @property
    def identity(self) -> str:
        """The identity of the server that runs it."""
        return self.about.identity

    @property
    def thread(self) -> str:
        """The name of the thread, or of the worker process, that runs it."""
        return self.about.thread

    @property
    def queue(self) -> str:
        """The queue that the job was taken from."""
        return self.about.queue

    @property
    def run_at(self) -> float:
        """The start of the run in epoch seconds; 0 if unknown."""
        return self.about.run_at

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its server, thread and start."""
        where = {"identity": valid(self.identity), "thread": valid(self.thread), "run_at": self.run_at}
        return where | super().as_dict()


class WorkSet:
    """The running jobs. All methods raise RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)

    def __iter__(self) -> Iterator[Work]:
        keys = self._admin.keys
        identities = [about.identity for about in self._admin.run(Processes(keys).rest())]
        return (Work(about) for about in self._admin.each(Works(keys, identities)))

    @property
    def size(self) -> int:
        """The number of running jobs that the servers report."""
        return sum(about.busy for about in self._admin.run(Processes(self._admin.keys).rest()))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def find_work(self, jid: str) -> Work | None:
        """The running job with that id; None if there is none."""
        return next((work for work in self if work.jid == jid), None)
