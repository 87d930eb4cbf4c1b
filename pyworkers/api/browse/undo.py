"""Undo: jobs that were deleted return to where they were, within ten minutes.

Used by the dashboard, the command line and users' programs; blocking. The delete calls of ``Queue`` and
``JobSet`` keep the jobs if they get the id of a deletion.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pyworkers.api.actions import Acted, Action, Given, Performed
from pyworkers.api.browse.actions import TaskAction
from pyworkers.api.browse.places import Place
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.record import JobRecord
from pyworkers.api.target import Admin, Steps, Where, admin_of
from pyworkers.protocol.editing import Spot, Stored, restored
from pyworkers.protocol.keys import Keys
from pyworkers.store import undo
from pyworkers.store.calls import Pages
from pyworkers.store.undo import DeletionNumbers, KeptJob, KeptJobs, Return
from pyworkers.text import counted, is_unicode

BACK = "back"
"""What became of a job that is back, among the words of ``Restoring``."""
_REASONS = {
    "gone": "was put back before",
    "batch": "is a member of a batch that has counted it as not done",
    "type": "was in a key that has another type now",
    "place": "was in a place that this version does not know",
}


class Restored(int):
    """How many jobs an undo has put back; ``refused`` counts the others by their reason."""

    def __new__(cls, number: int, refused: Mapping[str, int]) -> Self:
        """The number of jobs that are back."""
        return super().__new__(cls, number)

    def __init__(self, number: int, refused: Mapping[str, int]) -> None:
        self.refused = dict(refused)

    def __str__(self) -> str:
        """In words: ``2 jobs are put back; 1 is not: its lock is held by 8f2b…``."""
        parts = [f"{counted(int(self), 'job')} put back"]
        parts += (f"{number} not, because it {reason}" for reason, number in self.refused.items())
        return "; ".join(parts)


DELETION: Table[DeletionNumbers] = Table(
    "Deletion", Column("at", Kind.MOMENT), Column("kept", Kind.COUNT), Column("lost", Kind.COUNT)
)


def read_deletions(keys: Keys) -> Steps[dict[str, DeletionNumbers]]:
    """The deletions that can be undone, by id."""
    found = yield from undo.deletions(keys)
    return {id: one for id, one in found.items() if one.at > time.time() - undo.LIFE_S}


class Deletion:
    """Jobs that were deleted together, and can be put back for ten minutes.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __init__(self, id: str = "", where: Where = None, *, namespace: str | None = None) -> None:
        """``id``: the id of an earlier deletion; empty for a new one. ``where``: as in ``Queue``. Raises
        ConfigError.
        """
        self.id = id or undo.new_id()
        self._admin = admin_of(where, namespace)

    @classmethod
    def all(cls, where: Where = None, *, namespace: str | None = None) -> dict[str, DeletionNumbers]:
        """Those that can be undone, by id: when each began, and how many of its jobs are kept or lost."""
        admin = admin_of(where, namespace)
        return admin.run(read_deletions(admin.keys))

    @property
    def numbers(self) -> DeletionNumbers | None:
        """When it began, and how many of its jobs are kept or lost; None if it cannot be undone."""
        return self.all(self._admin).get(self.id)

    def undo(self) -> Restored:
        """Put the jobs back. Waiting ones run next, in the order in which they were enqueued.

        A unique job takes its lock back, or stays deleted if another one has it; so does a member of a batch
        that has counted it as not done. These can be tried again until ten minutes are over.
        """
        return restored_of(self._admin.each(Restoring(self._admin.keys, self.id)))


@dataclass(frozen=True, slots=True)
class PutBack:
    """The order to put the jobs of a deletion back, for a task; as ``Order`` of jobs in a place."""

    deletion: str
    move: ClassVar[TaskAction] = TaskAction("undo", "Put back", "put back")
    at: ClassVar[None] = None

    @property
    def action(self) -> str:
        """Its word."""
        return self.move.action

    @property
    def place(self) -> Place:
        """Where the jobs are."""
        return Place.of_deletion(self.deletion)


class Restoring(Pages[str]):
    """The return of the jobs of a deletion, page by page. Its item: what became of a job.

    This is ``BACK``, or why it stays deleted. A page that an error has ended may be read again.
    """

    def __init__(self, keys: Keys, deletion: str) -> None:
        self._keys = keys
        self._deletion = deletion
        self._read: KeptJobs | None = None
        self._turns: list[tuple[tuple[float, int], bytes]] = []
        self._jobs: KeptJobs | None = None
        self._page: list[KeptJob] = []
        self._sent = False
        self._left = 0

    def next_page(self) -> Steps[list[str]]:
        # Tens of megabytes of jobs: they are read twice, a page at a time. The first time for their order.
        if self._read is None:
            fields = yield from undo.fields_of(self._keys, self._deletion)
            self._read = KeptJobs(self._keys, self._deletion, fields)
        if not self._read.ended:
            self._turns += ((_turn(job), job.field) for job in (yield from self._read.next_page()))
            return []
        if self._jobs is None:
            self._jobs = KeptJobs(self._keys, self._deletion, [field for _, field in sorted(self._turns)])
            self._left = len(self._turns)
        if self._page or not self._jobs.ended:
            return (yield from self._restore(self._jobs))
        if self._turns and not self._left:
            yield from undo.forget(self._keys, self._deletion)
        self.ended = True
        return []

    def _restore(self, jobs: KeptJobs) -> Steps[list[str]]:
        if not self._page:
            self._page = yield from jobs.next_page()
        ready = [_ready(self._keys, job, time.time()) for job in self._page]
        known = [one for one in ready if one is not None]
        again, self._sent = self._sent, True
        words = (yield from undo.restore(self._keys, self._deletion, known)) if known else []
        self._page, self._sent = [], False
        # Those that are gone were put back by this call, whose reply was lost.
        words = [BACK if again and word == "gone" else word for word in words]
        self._left -= words.count(BACK)
        return [*words, *["place"] * (len(ready) - len(known))]


def restored_of(words: Iterable[str]) -> Restored:
    """The result of an undo, by what became of each job."""
    refused = Counter(words)
    back = refused.pop(BACK, 0)
    return Restored(back, {_reason(word): number for word, number in refused.items()})


def _kept(admin: Admin, deletion: str) -> Iterable[KeptJob]:
    fields = admin.run(undo.fields_of(admin.keys, deletion))
    return admin.each(KeptJobs(admin.keys, deletion, fields))


def _turn(job: KeptJob) -> tuple[float, int]:
    """Those that were enqueued first come last: each is put in front of those before."""
    return -(JobRecord(job.raw).enqueued_at or 0.0), -int(job.field)


def _ready(keys: Keys, job: KeptJob, now: float) -> Return | None:
    """What puts a job back; None for a place of a later version."""
    place = Place.read(job.place)
    if place is None:
        return None
    due = float(job.score) if job.score else None
    record = JobRecord(job.raw)
    new = restored(Stored(job.raw, Spot(place.kind), place.queue or record.queue, due), now)
    batch = record.data.get("batch")
    is_member = isinstance(batch, str) and is_unicode(batch) and bool(new.jid)
    return Return(job, place.key(keys), place.queue, new, batch if is_member and batch else "")


def _reason(word: str) -> str:
    kind, _, holder = word.partition(" ")
    return f"needs a lock that the job {holder} holds" if kind == "lock" else _REASONS[kind]


def _undo(admin: Admin, deletion: str) -> Acted:
    restored = Deletion(deletion, admin).undo()
    return Acted(int(restored), sum(restored.refused.values()), "; ".join(restored.refused))


def _queues(admin: Admin, given: Given) -> Iterable[str]:
    """The queues to which the jobs return, now or later."""
    for job in _kept(admin, given["deletion"]):
        place = Place.read(job.place)
        yield from {place.queue if place else "", JobRecord(job.raw).queue} - {""} or {""}


def _said(performed: Performed) -> str:
    """What became of the jobs."""
    done, refused, reason, _ = performed.result
    if not done and not refused:
        return "Nothing to put back: ten minutes are over, or it was done before"
    parts = [f"{counted(done, 'job')} put back"] if done else []
    if refused:
        parts.append(f"{counted(refused, 'job')} not: {reason}")
    return ". ".join(parts)


UNDO: Action[Any] = Action(
    "jobs.undo",
    "Put deleted jobs back, for ten minutes.",
    [Parameter("deletion", "The id of the deletion.", required=True)],
    _undo,
    queues=_queues,
    done=_said,
    missing="deletion",
    command="""Put deleted jobs back, within ten minutes.

    DELETION is the id that the command showed; `pyworkers audit --json` has it, too. Waiting jobs run next,
    in the order in which they were enqueued. A unique job whose lock another one has, and a member that its
    batch has counted as not done, stay deleted.

    \b
    Example: pyworkers undo 0f3a7c1e5b2d
    """,
)
