"""Outbox: the outcomes of one group, and the notes of its running jobs, that are not yet in Redis.

Runs in the master's event loop. It sends nothing itself; the fetcher does. A note rides along with outcomes,
or is sent after a short time. An outcome takes along what its job has noted before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyworkers.protocol import effects
from pyworkers.protocol.effects import DeleteField, Effect, FreeSlot, HoldHead, PassSlot, PauseQueue
from pyworkers.protocol.outcome import BURIED, DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.protocol.suspects import MARK

# A call of more than 1 GB ends the connection (client-query-buffer-limit), and would be sent again for ever.
MAX_BYTES = 64 * 1024 * 1024
# Until notes are sent for their own sake: so long, they wait for outcomes and for each other.
_NOTE_S = 0.01

UNTAKEN = Report(REQUEUE)
"""The report of a job that is handed back: no worker has begun it, so it is not logged and not counted."""

# What a server does at the end of a job, whatever its payload asks for: short, and not repeated by any sweep.
_OURS = (PassSlot, FreeSlot, PauseQueue, HoldHead, DeleteField)
_NONE: frozenset[str] = frozenset()
_REQUEUE, _NOTE = Fate.REQUEUE, Fate.NOTE
Portion = list[tuple[str, bytes, Report]]
"""Reports, each with the queue and the raw bytes of its job: outcomes, then notes."""


class Outbox:
    """The outcomes to send. ``changed`` is set whenever there may be a reason to exchange.

    ``marked`` returns the report to send for a marked job.
    """

    def __init__(self, marked: Callable[[bytes, Report], Report]) -> None:
        self._marked = marked
        self.changed = asyncio.Event()
        self._reports: Portion = []
        self._unsendable: list[tuple[str, bytes]] = []
        """Jobs that have ended, of which Redis takes no outcome at all."""
        self._returning = 0
        """The number of reports by which jobs go back to their queues."""
        self._notes: dict[int, tuple[str, bytes, Report]] = {}
        """By the identity of the job's bytes, which the master holds while the job runs."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._reports) + len(self._notes)

    @property
    def outcomes(self) -> int:
        """The number of outcomes alone."""
        return len(self._reports)

    def note(self, queue: str, raw: bytes, noted: Sequence[Effect]) -> None:
        """Add effects of a job that runs, whose outcome was not added yet."""
        before = self._notes.get(id(raw))
        together = effects.merge(before[2].outcome.effects if before else (), noted)
        # A new entry: the one before may be under way, and is then removed while this one stays.
        self._notes[id(raw)] = queue, raw, Report(Outcome(Fate.NOTE, effects=together))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_NOTE_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._notes:
            self.changed.set()

    def settle(self, queue: str, raw: bytes, report: Report) -> None:
        """Add an outcome, for the next exchange to settle."""
        if self._notes and (note := self._notes.pop(id(raw), None)):
            outcome = report.outcome
            together = effects.merge(note[2].outcome.effects, outcome.effects)
            report = report._replace(outcome=replace(outcome, effects=together))
        if raw.endswith(MARK):
            report = self._marked(raw, report)
        if report.outcome.fate is _REQUEUE:
            self._returning += 1
        self._reports.append((queue, raw, report))
        self.changed.set()

    def hand_back(self, jobs: Sequence[tuple[str, bytes]]) -> None:
        """Return jobs that no worker has taken, the oldest first, to the heads of their queues."""
        # The newest first, so that the oldest is popped first.
        self._reports += [(queue, raw, UNTAKEN) for queue, raw in reversed(jobs)]
        self._returning += len(jobs)
        self.changed.set()

    @property
    def handed_back(self) -> frozenset[str]:
        """The queues to which jobs go back."""
        if not self._returning:
            return _NONE
        return frozenset(queue for queue, _, report in self._reports if _returns(report))

    def portion(self) -> Portion:
        """The oldest outcomes that fit into one call: at least one, because the size of a job is limited."""
        size = 0
        for count, (_, raw, report) in enumerate(self._reports):
            size += len(raw)
            if report.outcome is not DONE:
                size += report.outcome.size
            if size > MAX_BYTES and count:
                return self._reports[:count]
        portion = self._reports.copy()
        for note in self._notes.values():
            size += len(note[1]) + note[2].outcome.size
            if size > MAX_BYTES and portion:
                break
            portion.append(note)
        return portion

    def bury(self, one: tuple[str, bytes, Report]) -> None:
        """Replace an outcome that cannot be sent by that of a dead job, as it is stored; a note is dropped.

        If not even that can be sent, the job stays in its in-progress list until this server gives it back.
        """
        queue, raw, report = one
        if report.outcome.fate is _NOTE:
            if self._notes.get(id(raw)) is one:
                del self._notes[id(raw)]
        elif self._reports and self._reports[0] is one:
            del self._reports[0]
            if report.outcome.fate is BURIED.fate and not report.outcome.payload:
                self._unsendable.append((queue, raw))
            else:
                ours = tuple(effect for effect in report.outcome.effects if isinstance(effect, _OURS))
                buried = report._replace(outcome=replace(BURIED, effects=ours))
                self._reports.insert(0, (queue, raw, buried))
            self._returning = sum(_returns(other) for _, _, other in self._reports)
        self.changed.set()

    def taken(self, portion: Portion, left: Sequence[int] = ()) -> int:
        """Remove this portion, which is in Redis, except for the places ``left``.

        Returns the number of its outcomes; the rest of it are notes.
        """
        outcomes = len(portion)
        while outcomes and portion[outcomes - 1][2].outcome.fate is _NOTE:
            outcomes -= 1
            note = portion[outcomes]
            if outcomes not in left and self._notes.get(id(note[1])) is note:
                del self._notes[id(note[1])]
        self._reports[:outcomes] = [portion[place] for place in left if place < outcomes]
        if self._returning:
            self._returning = sum(_returns(report) for _, _, report in self._reports)
        return outcomes

    def clear(self) -> None:
        """Drop all: a peer has the jobs."""
        self._reports.clear()
        self._notes.clear()
        self._unsendable.clear()
        self._returning = 0

    def known(self, queue: str) -> Counter[bytes]:
        """The bytes of every job of a queue with an outcome here, with their counts."""
        return Counter(self.raws(queue))

    def raws(self, queue: str) -> list[bytes]:
        """The bytes of every job of a queue with an outcome here, or with one that cannot be sent."""
        found = [raw for name, raw, _ in self._reports if name == queue]
        return found + [raw for name, raw in self._unsendable if name == queue]


def _returns(report: Report) -> bool:
    """True if the job goes back to its queue: it must not be taken again before Redis has said so."""
    return report.outcome.fate is _REQUEUE
