"""Outbox: the outcomes of a group that are not yet in Redis, and the notes of its running jobs.

Runs in the master's event loop. It sends nothing itself; the fetcher does. A note is sent with outcomes, or
alone after a short time. An outcome includes what its job has noted before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pyworkers.protocol import effects
from pyworkers.protocol.effects import DeleteField, Effect, FreeSlot, HoldHead, PassSlot, PauseQueue
from pyworkers.protocol.outcome import BURIED, DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.server.pool.delivery import Delivery
from pyworkers.store.jobs import Settlement

# A call of more than 1 GB ends the connection (client-query-buffer-limit), and would be sent again for ever.
MAX_BYTES = 64 * 1024 * 1024
# How long a note waits for outcomes and other notes before it is sent alone.
_NOTE_S = 0.01

UNTAKEN = Report(REQUEUE)
"""The report of a job that is given back: no worker has begun it, so it is not logged and not counted."""

# The server's own effects at the end of a job: they are short, and no sweep repeats them.
_OURS = (PassSlot, FreeSlot, PauseQueue, HoldHead, DeleteField)
_NONE: frozenset[str] = frozenset()
_REQUEUE, _NOTE = Fate.REQUEUE, Fate.NOTE
Portion = Sequence[Settlement]
"""The content of one call: jobs with their outcomes, then notes."""


class Note(Settlement):
    """The effects that a job has noted while it runs."""

    def __init__(self, job: Delivery, noted: tuple[Effect, ...]) -> None:
        super().__init__(job.queue, job.raw, Report(Outcome(_NOTE, effects=noted)))
        self.job = job


class Outbox:
    """The outcomes to send. ``changed`` is set whenever there may be a reason to exchange."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._jobs: list[Delivery] = []
        self._unsendable: list[Delivery] = []
        """Jobs that have ended, of which Redis takes no outcome at all."""
        self._returning = 0
        """The number of jobs that are given back to their queues."""
        self._notes: dict[Delivery, Note] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._jobs) + len(self._notes)

    @property
    def outcomes(self) -> int:
        """The number of outcomes alone."""
        return len(self._jobs)

    def note(self, job: Delivery, noted: Sequence[Effect]) -> None:
        """Add effects of a job that runs, whose outcome was not added yet."""
        before = self._notes.get(job)
        together = effects.merge(before.report.outcome.effects if before else (), noted)
        # A new entry: the one before may be under way, and is then removed while this one stays.
        self._notes[job] = Note(job, together)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_NOTE_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._notes:
            self.changed.set()

    def settle(self, job: Delivery, report: Report) -> None:
        """Add the outcome of a job, for the next exchange to settle."""
        if self._notes and (note := self._notes.pop(job, None)):
            outcome = report.outcome
            together = effects.merge(note.report.outcome.effects, outcome.effects)
            report = report._replace(outcome=replace(outcome, effects=together))
        if report.outcome.fate is _REQUEUE:
            self._returning += 1
        job.settling(report)
        self._jobs.append(job)
        self.changed.set()

    def give_back(self, jobs: Sequence[Delivery]) -> None:
        """Give back jobs that no worker has taken, the oldest first, to the heads of their queues."""
        for job in jobs:
            job.settling(UNTAKEN)
        # The newest first, so that the oldest is popped first.
        self._jobs += reversed(jobs)
        self._returning += len(jobs)
        self.changed.set()

    @property
    def given_back(self) -> frozenset[str]:
        """The queues to which jobs are given back."""
        if not self._returning:
            return _NONE
        return frozenset(job.queue for job in self._jobs if _returns(job))

    def portion(self) -> Portion:
        """The oldest outcomes that fit into one call: at least one, because the size of a job is limited."""
        size = 0
        for count, job in enumerate(self._jobs):
            size += len(job.raw)
            if job.report.outcome is not DONE:
                size += job.report.outcome.size
            if size > MAX_BYTES and count:
                return self._jobs[:count]
        portion: list[Settlement] = [*self._jobs]
        for note in self._notes.values():
            size += len(note.raw) + note.report.outcome.size
            if size > MAX_BYTES and portion:
                break
            portion.append(note)
        return portion

    def replace_unsendable(self, one: Settlement) -> None:
        """Replace an outcome that cannot be sent by the outcome of a dead job, as stored; a note is dropped.

        If not even that can be sent, the job stays in its in-progress list until this server gives it back.
        """
        if isinstance(one, Note):
            self._drop(one)
        elif self._jobs and self._jobs[0] is one:
            self._replace_first(self._jobs[0])
            self._returning = sum(map(_returns, self._jobs))
        self.changed.set()

    def _replace_first(self, job: Delivery) -> None:
        outcome = job.report.outcome
        if outcome.fate is BURIED.fate and not outcome.payload:
            self._unsendable.append(self._jobs.pop(0))
        else:
            ours = tuple(effect for effect in outcome.effects if isinstance(effect, _OURS))
            job.settling(job.report._replace(outcome=replace(BURIED, effects=ours)))

    def taken(self, portion: Portion, left: Sequence[int] = ()) -> int:
        """Remove this portion, which is in Redis, except for the places ``left``.

        Its outcomes must still be the first ones, as they are unless ``clear`` was called since ``portion``.
        Returns the number of its outcomes; the rest of it are notes.
        """
        outcomes = len(portion)
        while outcomes and isinstance(note := portion[outcomes - 1], Note):
            outcomes -= 1
            if outcomes not in left:
                self._drop(note)
        ended = self._jobs[:outcomes]
        kept = [ended[place] for place in sorted(left) if place < outcomes]
        for job in ended:
            if not kept or job not in kept:
                job.settled()
        self._jobs[:outcomes] = kept
        if self._returning:
            self._returning = sum(map(_returns, self._jobs))
        return outcomes

    def _drop(self, note: Note) -> None:
        if self._notes.get(note.job) is note:
            del self._notes[note.job]

    def clear(self) -> None:
        """Drop all: a peer has the jobs."""
        for job in (*self._jobs, *self._unsendable):
            job.settled()
        self._jobs.clear()
        self._notes.clear()
        self._unsendable.clear()
        self._returning = 0

    def known(self, queue: str) -> Counter[bytes]:
        """The bytes of every job of a queue with an outcome here, with their counts."""
        return Counter(self.raws(queue))

    def raws(self, queue: str) -> list[bytes]:
        """The bytes of every job of a queue with an outcome here, or with one that cannot be sent."""
        return [job.raw for job in (*self._jobs, *self._unsendable) if job.queue == queue]


def _returns(job: Delivery) -> bool:
    """True if the job is given back: it must not be taken again before Redis has said so."""
    return job.report.outcome.fate is _REQUEUE
