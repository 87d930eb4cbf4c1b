"""ProcessSet and WorkSet: the servers on this Redis, Sidekiq's included, and what they run."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pyworkers.api.record import JobRecord
from pyworkers.api.target import Where, admin_of
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.store import processes
from pyworkers.store.admin import Admin
from pyworkers.store.processes import ProcessView, WorkView

# How long to wait before asking again whether the servers have answered.
_ANSWER_S = 0.02


class Process:
    """One server. Its numbers are those of its last beat; ``about`` holds them all."""

    def __init__(self, about: ProcessView, admin: Admin) -> None:
        self.about = about
        self._admin = admin

    def __repr__(self) -> str:
        return f"Process({self.identity!r})"

    @property
    def identity(self) -> str:
        """Its name: host, process id and nonce."""
        return self.about.identity

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it serves."""
        return self.about.queues

    @property
    def busy(self) -> int:
        """How many jobs it runs."""
        return self.about.busy

    @property
    def concurrency(self) -> int:
        """How many jobs it can run at a time."""
        return self.about.concurrency

    @property
    def stopping(self) -> bool:
        """True if it was told to be quiet or to stop."""
        return self.about.quiet

    def silent(self, now: float) -> bool:
        """True if it has not been heard of for a minute: go-workers2's descriptions outlive their process."""
        return self.about.silent(now)

    def quiet(self) -> None:
        """Ask it to take no more jobs. It obeys at its next beat, within 10 s. Raises PyworkersError."""
        self._signal(processes.QUIET)

    def stop(self) -> None:
        """Ask it to stop. It obeys at its next beat, within 10 s. Raises PyworkersError."""
        self._signal(processes.STOP)

    def dump_threads(self) -> None:
        """Ask it to log the stacks of what it runs. Raises PyworkersError."""
        self._signal(processes.DUMP)

    def _signal(self, word: str) -> None:
        if self.about.embedded:
            raise PyworkersError(
                f"{self.identity} is embedded in another program, which alone can quiet or stop it"
            )
        self._admin.signal(self.identity, word)


class ProcessSet:
    """The servers that are alive, in no order. Everything raises RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)
        self._may_watch = True

    def __iter__(self) -> Iterator[Process]:
        return (Process(about, self._admin) for about in processes.processes(self._admin))

    def refresh(self, timeout: float = 1.5) -> None:
        """Have our servers write their counters and running jobs now, and each second for the next ten.

        Returns when all of them have, at most ``timeout`` seconds later; at once if the user may not write to
        Redis, and then the numbers are as old as the last beat. Raises RedisUnavailableError.
        """
        if self._may_watch:
            try:
                look = processes.watch(self._admin)
            except StoreError:
                self._may_watch = False
            else:
                deadline = time.monotonic() + timeout
                while not processes.answered(self._admin, look) and time.monotonic() < deadline:
                    time.sleep(_ANSWER_S)

    @property
    def size(self) -> int:
        """How many are registered; a few of them may have ended without a word."""
        return int(self._admin.run("SCARD", self._admin.keys.processes))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def find(self, identity: str) -> Process | None:
        """The process of that name."""
        return next((process for process in self if process.identity == identity), None)

    @property
    def leader(self) -> str:
        """The identity of Sidekiq Enterprise's leader; empty if there is none."""
        stored = self._admin.run("GET", self._admin.keys.leader)
        return "" if stored is None else stored.decode(errors="surrogateescape")

    def cleanup(self) -> int:
        """Forget processes that ended without a word, at most once a minute for all who ask. How many."""
        return processes.cleanup(self._admin)


class Work(JobRecord):
    """One running job, as its server described it at its last beat."""

    def __init__(self, about: WorkView) -> None:
        super().__init__(about.payload)
        self.about = about

    @property
    def identity(self) -> str:
        """The server that runs it."""
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
        """When it began, in epoch seconds; 0 if that is not said."""
        return self.about.run_at


class WorkSet:
    """The jobs that run. Raises RedisUnavailableError and StoreError."""

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)

    def __iter__(self) -> Iterator[Work]:
        identities = [about.identity for about in processes.processes(self._admin)]
        return (Work(about) for about in processes.works(self._admin, identities))

    @property
    def size(self) -> int:
        """How many jobs the servers say that they run."""
        return sum(about.busy for about in processes.processes(self._admin))

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    def find_work(self, jid: str) -> Work | None:
        """The running job with that id."""
        return next((work for work in self if work.jid == jid), None)
