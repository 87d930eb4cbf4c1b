"""Editing: a job that waits, is scheduled, has failed or is dead gets other arguments or another time.

Used by the command line, the dashboard and users' programs. A copy with other arguments is another job.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyworkers.api.record import JobRecord
from pyworkers.api.target import Admin
from pyworkers.encryption import Encryption, KeySource
from pyworkers.errors import BadMessageError
from pyworkers.protocol import sealing, timestamps
from pyworkers.protocol.editing import Edit, Stored, copied, edited
from pyworkers.store import editing
from pyworkers.store.editing import Written
from pyworkers.store.flow.enqueueing import BatchedJob, enqueue


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a job is: in this Redis, and at this index of its queue when it was read."""

    admin: Admin
    job: Stored
    place: int = 0


class EditableJob(JobRecord):
    """A job that is where it can be edited."""

    @abstractmethod
    def _seat(self) -> Seat:
        """Where it is. Raises BadMessageError for a job without a valid queue."""

    @abstractmethod
    def _settle(self, written: Written, at: float | None) -> None:
        """Note how the job is stored now."""

    def edit(
        self,
        args: Sequence[Any] | None = None,
        at: datetime | float | None = None,
        *,
        unique_by: Any = None,
        encryption: KeySource | None = None,
    ) -> bool:
        """Give the job other arguments or another time, in one step; False if it has started or moved.

        ``at``: an aware datetime or epoch seconds. A waiting or dead job moves to ``schedule`` by it. A job
        keeps its id, its place and its batch. A unique one takes the lock of its new arguments, for which
        ``unique_by`` is needed if the enqueue had it; an encrypted one is sealed with the newest of the keys
        of ``encryption``, by default the keys of the environment.

        Raises BadArgumentError for arguments that cannot be enqueued, and for a time in an ordered queue;
        DuplicateJobError if another job has that lock, EncryptionKeyError, and BadMessageError for bytes that
        are not a job. Then nothing is changed.
        """
        seat = self._seat()
        asked = self._asked(args, at, unique_by, () if args is None else encryption)
        new = edited(seat.job, asked, time.time())
        written = seat.admin.run(editing.edit(seat.admin.keys, seat.job, new, seat.place))
        if written is not None:
            self._settle(written, asked.at)
        return written is not None

    def enqueue_copy(
        self,
        args: Sequence[Any] | None = None,
        at: datetime | float | None = None,
        *,
        unique_by: Any = None,
        encryption: KeySource | None = None,
    ) -> str:
        """Enqueue another job of this class, in this queue, with these options; returns its id.

        Without ``args``, it has the arguments of this job; without ``at``, it is due now. The copy has not
        failed, and belongs to no batch. Raises as ``edit``: DuplicateJobError also if this job has the lock
        of the copy.
        """
        seat = self._seat()
        asked = self._asked(args, at, unique_by, encryption)
        return enqueue_copied(seat.admin, self.raw, seat.job.queue, asked)

    def _asked(
        self, args: Any, at: datetime | float | None, unique_by: Any, source: KeySource | None
    ) -> Edit:
        if self.unreadable:
            raise BadMessageError(self.unreadable)
        needs_keys = self.data.get(sealing.FIELD) is True and source != ()
        keys = Encryption(source).keys() if needs_keys else None
        return Edit(args, None if at is None else timestamps.due(at), unique_by, keys)


def enqueue_copied(admin: Admin, raw: bytes, queue: str, asked: Edit) -> str:
    """Enqueue a copy of a stored job in this queue; returns its id. Raises as ``enqueue_copy``."""
    job = copied(raw, queue, asked, time.time())
    answered = admin.run(enqueue(admin.keys, [BatchedJob(job)]))
    if answered.refusal is not None:
        raise answered.refusal.error
    return job.jid
