"""Queue: the waiting jobs of one queue."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from weakref import WeakSet

from pyworkers.api.actions import Acted, Action, Confirmation, Given
from pyworkers.api.audit import AuditEntry, read_audit
from pyworkers.api.editing import EditableJob, Seat
from pyworkers.api.parameters import Parameter
from pyworkers.api.queuestats import QueueStats
from pyworkers.api.record import JobRecord
from pyworkers.api.target import Admin, Countable, Where, admin_of
from pyworkers.protocol.editing import Spot, Stored
from pyworkers.protocol.envelope import is_plain_id
from pyworkers.protocol.keys import Keys, check_queue_name
from pyworkers.protocol.portions import portions
from pyworkers.store import queues
from pyworkers.store.calls import Steps
from pyworkers.store.editing import Written
from pyworkers.store.flow.removal import NOT_KEPT, Clearing, KeptFor
from pyworkers.store.queues import Entries, WaitingJob, Withdrawal
from pyworkers.store.sets import PAGE
from pyworkers.store.undo import MOST_JOBS, new_id, offered
from pyworkers.store.views.audit import MOST as MOST_ACTIONS
from pyworkers.text import counted


class QueuedJob(EditableJob):
    """A job that waits in a queue."""

    def __init__(self, raw: bytes, queue: Queue, place: int = 0) -> None:
        super().__init__(raw)
        self._queue = queue
        self.place = place
        """The index of the job when it was read, counted from the newest."""

    @property
    def queue(self) -> str:
        """The queue in which the job waits."""
        return self._queue.name

    def _seat(self) -> Seat:
        return self._queue.seat_of(self)

    def _settle(self, written: Written, at: float | None) -> None:
        self._store(written.raw)

    def latency(self, now: float | None = None) -> float:
        """The seconds that the job has been waiting; 0 if unknown."""
        return _age(self, time.time() if now is None else now)

    def delete(self) -> bool:
        """Remove the job; False if it is no longer waiting."""
        return self._queue.delete_jobs([self]) == 1

    def kill(self) -> bool:
        """Move the job to ``dead``; False if it is no longer waiting."""
        return self._queue.kill_jobs([self]) == 1

    def run_first(self) -> bool:
        """Move the job to the end of its queue that is popped next; False if it is no longer waiting."""
        return self._queue.run_first([self]) == 1


class Queue(Countable):
    """One queue. Iteration starts with the newest job; jobs may be added and removed meanwhile.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __init__(self, name: str = "default", where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self.name = name
        self._admin = admin_of(where, namespace)
        self._walks: WeakSet[Entries] = WeakSet()

    @classmethod
    def all(cls, where: Where = None, *, namespace: str | None = None) -> list[Queue]:
        """All queues to which a job was ever pushed, by name; ``clear`` removes a queue."""
        admin = admin_of(where, namespace)
        return [cls(name, admin) for name in admin.run(queues.known(admin.keys))]

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    @property
    def size(self) -> int:
        """The number of waiting jobs."""
        return self._admin.run(queues.size(self._admin.keys, self.name))

    @property
    def latency(self) -> float:
        """The seconds that the next job has been waiting; 0 if none waits."""
        raw = self._admin.run(queues.next_job(self._admin.keys, self.name))
        return 0.0 if raw is None else _age(JobRecord(raw), time.time())

    @property
    def paused(self) -> bool:
        """True if the queue is paused."""
        return self._admin.run(queues.is_paused(self._admin.keys, self.name))

    def pause(self) -> bool:
        """Pause the queue: pyworkers servers take no more jobs within 2 s, Sidekiq Pro's within 10 s.

        Returns False if it was paused already.
        """
        check_queue_name(self.name)
        return self._admin.run(queues.pause(self._admin.keys, self.name))

    def resume(self) -> bool:
        """Undo ``pause``; False if the queue was not paused. Retry the head of an ordered queue now."""
        return self._admin.run(queues.resume(self._admin.keys, self.name))

    def __iter__(self) -> Iterator[QueuedJob]:
        for raw, place in self._entries():
            yield QueuedJob(raw, self, place)

    def find_job(self, jid: str) -> QueuedJob | None:
        """A waiting job with that id; None if there is none. Reads the queue up to that job."""
        return next(self.find_jobs(jid), None)

    def find_jobs(self, jid: str) -> Iterator[QueuedJob]:
        """All waiting jobs with that id: a job may have been enqueued twice."""
        # A job whose bytes lack a plain id is not decoded; other ids may be stored with JSON escapes.
        part = jid.encode() if is_plain_id(jid) else b""
        for raw, place in self._entries():
            if part in raw and (job := QueuedJob(raw, self, place)).jid == jid:
                yield job

    def seat_of(self, job: QueuedJob) -> Seat:
        """Where a waiting job is, for an edit."""
        return Seat(self._admin, Stored(job.raw, Spot.QUEUE, self.name), job.place)

    def clear(self, *, deletion: str = "") -> int:
        """Remove all waiting jobs; returns their number. ``deletion`` as in ``delete_jobs``."""
        keys, kept = self._admin.keys, self._kept(deletion)
        return sum(self._admin.each(Clearing(keys, keys.queue(self.name), time.time(), self.name, kept)))

    def delete_jobs(self, jobs: Iterable[JobRecord], *, deletion: str = "") -> int:
        """Remove these jobs; returns how many were still waiting.

        ``deletion``: the id of a ``Deletion``, with which they can be put back for ten minutes.
        """
        return self._withdraw(jobs, Withdrawal.DELETED, self._kept(deletion))

    def _kept(self, deletion: str) -> KeptFor:
        return KeptFor(deletion, f"queue:{self.name}")

    def kill_jobs(self, jobs: Iterable[JobRecord]) -> int:
        """Move these jobs to ``dead``; returns how many were still waiting."""
        return self._withdraw(jobs, Withdrawal.DEAD)

    def run_first(self, jobs: Iterable[JobRecord]) -> int:
        """Have these jobs popped next, the first of them first; returns how many were still waiting."""
        jobs = list(jobs)
        for walk in self._walks:
            walk.moved(job.raw for job in jobs)
        # Each portion is put in front of the one before.
        return self._withdraw(reversed(jobs), Withdrawal.FIRST)

    def _withdraw(self, jobs: Iterable[JobRecord], how: Withdrawal, kept: KeptFor = NOT_KEPT) -> int:
        waiting = (WaitingJob(job.raw, getattr(job, "place", 0)) for job in jobs)
        return sum(
            self._admin.run(queues.withdraw(self._admin.keys, self.name, portion, time.time(), how, kept))
            for portion in portions(waiting, PAGE, lambda job: len(job.raw))
        )

    def _entries(self) -> Iterator[WaitingJob]:
        walk = Entries(self._admin.keys.queue(self.name))
        self._walks.add(walk)
        return self._admin.each(walk)


def _age(job: JobRecord, now: float) -> float:
    return 0.0 if job.enqueued_at is None else max(0.0, now - job.enqueued_at)


def _ask_to_clear(admin: Admin, name: str) -> Confirmation:
    size = Queue(name, admin).size
    kept = f"{MOST_JOBS:,} of them can be put back" if size > MOST_JOBS else "this can be undone"
    text = f"{counted(size, 'waiting job')} will be removed; {kept} for ten minutes."
    return Confirmation(f"Clear the queue {name} now?", text, f"Clear {counted(size, 'job')}")


def _clear(admin: Admin, name: str) -> Acted:
    deletion = new_id()
    number = Queue(name, admin).clear(deletion=deletion)
    return Acted(number, undo=admin.run(offered(admin.keys, deletion)) if number else "")


def _named(_admin: Admin, given: Given) -> Iterable[str]:
    return [given["name"]]


_NAME = Parameter("name", "The name of the queue.", required=True, argument="queue")
PAUSE: Action[QueueStats] = Action(
    "queue.pause",
    "Pause the queue.",
    [_NAME],
    lambda admin, name: Queue(name, admin).pause(),
    queues=_named,
    done="{name} is paused",
    unchanged="{name} is paused already",
    offered=lambda queue: not queue.paused,
    several="changed",
    command="""Stop all servers from taking jobs from QUEUE.

    Jobs can still be enqueued; running jobs continue. pyworkers pauses within 2 seconds, Sidekiq Pro within
    10; Sidekiq without Pro and go-workers ignore the pause. A queue that no server serves is paused with a
    warning.

    \b
    Example: pyworkers pause mail
    """,
)
RESUME: Action[QueueStats] = Action(
    "queue.resume",
    "Undo a pause.",
    [_NAME],
    lambda admin, name: Queue(name, admin).resume(),
    queues=_named,
    done="{name} is resumed",
    unchanged="{name} was not paused",
    offered=lambda queue: queue.paused,
    several="changed",
    command="""Let servers take jobs from a paused QUEUE again.

    In an ordered queue, a failed job at the head is retried now.

    \b
    Example: pyworkers resume mail
    """,
)
CLEAR: Action[QueueStats] = Action(
    "queue.clear",
    "Delete all waiting jobs.",
    [_NAME],
    _clear,
    queues=_named,
    done="{name} is cleared: {count} removed",
    unchanged="{name} is cleared: {count} removed",
    counts="job",
    dangerous=True,
    asks=_ask_to_clear,
    offered=lambda queue: queue.size > 0,
)
SWITCHES = (PAUSE, RESUME)


def read_pause(keys: Keys, name: str) -> Steps[AuditEntry | None]:
    """Who paused a paused queue, and when; None if the audit does not have it any more."""
    found = None
    for entry in (yield from read_audit(keys, count=MOST_ACTIONS)).actions:
        if entry.target == name and entry.action == RESUME.name:
            break
        if entry.target == name and entry.action == PAUSE.name:
            # A later one has changed nothing.
            found = entry
    return found


ACTIONS = (*SWITCHES, CLEAR)
