"""Place: a queue or a sorted set of jobs, by the words that addresses and pages use for it.

Pure. It has no connection: the reads are steps, and the actions are methods of ``Queue`` and ``JobSet``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pyworkers.api.record import JobRecord
from pyworkers.api.sets import DeadSet, JobSet, RetrySet, ScheduledSet
from pyworkers.protocol.editing import Spot, home_of
from pyworkers.protocol.keys import Keys

_QUEUE, _DELETION = "queue:", "deletion:"
SETS: dict[str, type[JobSet]] = {"scheduled": ScheduledSet, "retries": RetrySet, "dead": DeadSet}
"""The sets by their words."""
_COLUMNS = {
    "scheduled": ("due", "jid", "queue", "class", "arguments"),
    "retries": ("due", "failures", "jid", "queue", "class", "error"),
    "dead": ("died", "jid", "queue", "class", "error"),
}
_OF_A_QUEUE = ("enqueued_at", "jid", "class", "arguments")


@dataclass(frozen=True, slots=True)
class Place:
    """``word``: ``scheduled``, ``retries``, ``dead``, ``queue:NAME``, or ``deletion:ID`` of deleted jobs."""

    word: str
    reversed: bool = False
    """From its other end: a queue from the newest job on, the dead from the one that died first."""

    @classmethod
    def of_queue(cls, name: str, *, reversed: bool = False) -> Self:
        """The place of a queue."""
        return cls(f"{_QUEUE}{name}", reversed)

    @classmethod
    def of_deletion(cls, id: str) -> Self:
        """The place of the jobs of a deletion, which is no place to list or to search."""
        return cls(f"{_DELETION}{id}")

    @classmethod
    def read(cls, word: str) -> Self | None:
        """The place of a word from an address; None for any other text."""
        return cls(word) if word in SETS or (word.startswith(_QUEUE) and word != _QUEUE) else None

    @property
    def queue(self) -> str:
        """The name of the queue; empty for a set."""
        return self.word.removeprefix(_QUEUE) if self.word.startswith(_QUEUE) else ""

    @property
    def deletion(self) -> str:
        """The id of the deletion; empty for another place."""
        return self.word.removeprefix(_DELETION) if self.word.startswith(_DELETION) else ""

    @property
    def kind(self) -> str:
        """The word without the name of a queue."""
        return "queue" if self.queue else self.word

    @property
    def descending(self) -> bool:
        """True for the dead jobs, of which the latest comes first, and for other places if ``reversed``."""
        return self.reversed != (self.word == "dead")

    @property
    def columns(self) -> tuple[str, ...]:
        """The facts about its jobs that lists show, by their names in the table of a job."""
        return _COLUMNS.get(self.word, _OF_A_QUEUE)

    def key(self, keys: Keys) -> str:
        """The key in Redis."""
        spot = Spot(self.word) if self.word in SETS else Spot.QUEUE
        return home_of(keys, spot, self.queue)

    def since(self, job: JobRecord, score: float | None) -> float | None:
        """The time from which the age of a job counts, in epoch seconds; None if unknown.

        Of a waiting job when it was enqueued, of a scheduled one when it was created, of one in ``retries``
        its last failure, of a dead one its death.
        """
        if self.word == "scheduled":
            return job.created_at
        if self.word == "retries":
            return job.failed_at
        return score if self.word == "dead" else job.enqueued_at


SCHEDULED = Place("scheduled")
"""The jobs for later, the next one first."""
RETRIES = Place("retries")
"""The failed jobs that wait for their next attempt, the next one first."""
DEAD = Place("dead")
"""The jobs that are not tried again, the latest first."""
