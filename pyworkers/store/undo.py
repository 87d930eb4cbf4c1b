"""Undo: the jobs of a deletion, kept for ten minutes, and their return to where they were.

Used by ``api``; never by the server. The scripts of ``removal`` keep the jobs in the step that deletes them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pyworkers.errors import PyworkersError
from pyworkers.protocol.editing import Edited
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import PageSize
from pyworkers.store.calls import Mode, Pages, Request, Steps, command, decoded, every, one, script
from pyworkers.store.flow.removal import written
from pyworkers.store.sets import PAGE
from pyworkers.store.transport.replies import blobs, integer

LIFE_S = 600
MOST_JOBS = 100_000
"""Of one deletion; and ``MOST_BYTES`` of all that can be undone. The oldest ones make room."""
MOST_BYTES = 64 << 20
_FIELD = re.compile(rb"\d{1,15}")
_ENTRY = re.compile(rb"(\d{1,15}) (\S*) ")
_NUMBERS = re.compile(rb"(\d{1,15}(?:\.\d{1,9})?) (\d{1,15}) \d+ (\d{1,15})")


class DeletionNumbers(NamedTuple):
    """A deletion that can be undone: when it began, in epoch seconds, and its jobs that are kept or lost."""

    at: float
    kept: int
    lost: int


class KeptJob(NamedTuple):
    """A deleted job. ``field`` is its number; ``score`` is empty for one that waited in a queue."""

    field: bytes
    place: str
    score: str
    raw: bytes


class Return(NamedTuple):
    """A deleted job with what it needs in its place, the key ``home``. ``queue``: for a waiting one."""

    job: KeptJob
    home: str
    queue: str
    new: Edited
    batch: str = ""


def new_id() -> str:
    """The id of a new deletion."""
    return os.urandom(6).hex()


def deletions(keys: Keys) -> Request[dict[str, DeletionNumbers]]:
    """The deletions that can be undone, by their ids."""
    return Request([command("HGETALL", keys.deletions)], _numbers, Mode.LENIENT)


class KeptJobs(Pages[KeptJob]):
    """The jobs of a deletion with these fields, page by page; those that are back are left out.

    A page that an error has ended may be read again.
    """

    def __init__(self, keys: Keys, deletion: str, fields: Sequence[bytes]) -> None:
        self._key = keys.deletion(deletion)
        self._left = fields
        self._size = PageSize(PAGE)
        self.ended = not fields

    def next_page(self) -> Steps[list[KeptJob]]:
        some = self._left[: self._size.jobs]
        entries = yield from one("HMGET", self._key, *some, read=list)
        self._left = self._left[len(some) :]
        found = {field: entry for field, entry in zip(some, entries, strict=True) if entry is not None}
        self._size.note(found.values())
        self.ended = not self._left
        return [job for job in map(_job, found, found.values()) if job is not None]


def offered(keys: Keys, deletion: str) -> Steps[str]:
    """The id of a deletion whose jobs can be put back; empty if none is kept: Redis may have had no room.

    The jobs are deleted, so an error here is not one of the deletion: then perhaps they can.
    """
    if not deletion:
        return ""
    try:
        numbers = (yield from deletions(keys)).get(deletion)
    except PyworkersError:
        return deletion
    return deletion if numbers is not None and numbers.kept else ""


def fields_of(keys: Keys, deletion: str) -> Request[list[bytes]]:
    """The fields of the jobs of a deletion; none once its time is over, or all of them are back."""
    return one("HKEYS", keys.deletion(deletion), read=blobs)


def restore(keys: Keys, deletion: str, jobs: Sequence[Return]) -> Steps[list[str]]:
    """Put jobs back, the last ones of a queue first. Returns the word of restore.lua for each."""
    names: dict[str, int] = {keys.deletion(deletion): 1, keys.queues: 2}
    args: list[Any] = []
    for job, home, queue, new, of_batch in jobs:
        lock = names.setdefault(keys.own(new.locks.new), len(names) + 1) if new.locks.life_ms else 0
        place = names.setdefault(home, len(names) + 1)
        args += (job.field, job.raw, job.score, queue, place, new.jid, of_batch, lock, new.locks.life_ms)
    effects = ((n, effect) for n, ready in enumerate(jobs, 1) for effect in ready.new.effects)
    more_names, more_args = written(keys, effects)
    args = [len(names) + 1, 2 + len(args), *args, *more_args]
    words = yield from script("removal/restore", [*names, *more_names], args, blobs, keys.namespace)
    return [decoded(word) for word in words]


def forget(keys: Keys, deletion: str) -> Request[Any]:
    """Keep no job of a deletion any more."""
    sent = [
        command("HDEL", keys.deletions, deletion, read=integer),
        command("UNLINK", keys.deletion(deletion), read=integer),
    ]
    return every(sent, Mode.TRANSACTION)


def _numbers(replies: list[Any]) -> dict[str, DeletionNumbers]:
    found: dict[str, DeletionNumbers] = {}
    for name, value in dict(replies[0] or {}).items():
        if numbers := _NUMBERS.fullmatch(value):
            found[decoded(name)] = DeletionNumbers(float(numbers[1]), int(numbers[2]), int(numbers[3]))
    return found


def _job(name: bytes, entry: bytes) -> KeptJob | None:
    """A kept job; None for what another program has written: restore.lua must not fail on its score."""
    head = _ENTRY.match(entry)
    if head is None or not _FIELD.fullmatch(name):
        return None
    try:
        score = repr(float(head[2])) if head[2] else ""
    except ValueError:
        return None
    place, raw = entry[head.end() :][: int(head[1])], entry[head.end() + int(head[1]) :]
    return None if score == "nan" else KeptJob(name, decoded(place), score, raw)
