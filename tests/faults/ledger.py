"""The ledger: what producers and jobs say that they did, in a file outside of Redis.

Written by the test, for its producers, and by worker processes. One line per note, in one write, so that no
line is torn and a process that is killed leaves all that it noted.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.support import whole_lines

# What a server's environment says to the jobs: the file, the name of the server, and how many workers it has.
LEDGER_VARIABLE, SERVER_VARIABLE = "FAULTS_LEDGER", "FAULTS_SERVER"
CONCURRENCY_VARIABLE = "FAULTS_CONCURRENCY"


@dataclass(frozen=True, slots=True)
class Note:
    """One line. ``time`` is of the clock that all processes of the machine share, in seconds."""

    word: str
    jid: str
    pid: int
    server: str
    time: float
    about: list[Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One start of one job; ``end`` is None where the job did not come to its end."""

    start: Note
    end: Note | None


class Ledger:
    """Notes of one scenario. ``enqueued`` only after the enqueue call returned."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, word: str, jid: str, *about: Any) -> None:
        """Append a line."""
        server = os.environ.get(SERVER_VARIABLE, "")
        line = json.dumps([word, jid, os.getpid(), server, clock(), list(about)]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def notes(self, word: str | None = None, jid: str | None = None) -> list[Note]:
        """All notes, or those with this word, of this job."""
        if not self.path.exists():
            return []
        notes = [Note(*json.loads(line)) for line in whole_lines(self.path)]
        return [note for note in notes if word in (None, note.word) and jid in (None, note.jid)]

    def enqueued(self) -> set[str]:
        """The ids of the jobs whose enqueue call returned."""
        return {note.jid for note in self.notes("enqueued")}

    def runs(self) -> dict[str, list[Run]]:
        """Every run of every job, in the order of their starts."""
        found: dict[str, list[Run]] = defaultdict(list)
        for jid, notes in self._by_job().items():
            for place, note in enumerate(notes):
                if note.word == "start":
                    found[jid].append(Run(note, next(_ends(note, notes[place + 1 :]), None)))
        return dict(found)

    def _by_job(self) -> dict[str, list[Note]]:
        found: dict[str, list[Note]] = defaultdict(list)
        for note in self.notes():
            found[note.jid].append(note)
        return found

    def clear(self) -> None:
        """Forget all notes, at rest."""
        self.path.unlink(missing_ok=True)


def _ends(start: Note, later: list[Note]) -> Iterator[Note]:
    """The note of the same process that follows the start of a job, among those about this job."""
    for note in later:
        if note.pid == start.pid:
            if note.word in ("end", "raise"):
                yield note
            return


def clock() -> float:
    """Seconds of the clock that every process of this machine shares, and no program can set."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
