"""ProgressNotes: writes how far a tracked job is, at most four times a second.

Runs in the worker process, in the threads of the job.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.track import progressed
from pyworkers.protocol.status import Progress

# At most four notes a second.
_APART_S = 0.25


class ProgressNotes:
    """The progress of one run; ``note`` sends an effect."""

    def __init__(self, jid: str, note: Callable[[Effect], None], clock: Callable[[], float]) -> None:
        self._jid = jid
        self._note = note
        self._clock = clock
        self._due_s = 0.0
        self._last: Progress | None = None

    def report(self, progress: Progress) -> None:
        """Write the progress, or keep it if one was written just now."""
        now_s = self._clock()
        if now_s < self._due_s:
            self._last = progress
            return
        self._due_s, self._last = now_s + _APART_S, None
        self._note(progressed(self._jid, progress))

    def rest(self) -> list[Effect]:
        """The effects of the last progress, if it was kept: they belong to the end of the job."""
        return [] if self._last is None else [progressed(self._jid, self._last)]
