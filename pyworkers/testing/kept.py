"""Kept: what Redis keeps beside the jobs, for a test: locks, statuses and results.

Used in the test's process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.admission import Admission, Admitted
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.memory import Memory
from pyworkers.protocol.status import JobStatus


class Kept:
    """The locks of unique jobs, status and results of tracked ones. ``now``: the time, in epoch seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._admission = Admission()
        self._memory = Memory(now)

    def admit(
        self,
        jobs: list[PushedJob],
        now: float,
        waiting: Callable[[str], float],
        is_scheduled: Callable[[str], bool],
    ) -> Admitted:
        """Decide about pushed jobs (``Admission``), and write what belongs to their push."""
        admitted = self._admission.admit(jobs, now, waiting, is_scheduled)
        for job in admitted.jobs:
            if job.terms is not None:
                self.apply(job.terms.effects)
        return admitted

    def apply(self, effects: Iterable[Effect]) -> None:
        """Apply the effects of a start, a progress or an end."""
        effects = tuple(effects)
        self._admission.apply(effects)
        self._memory.apply(effects)

    def status(self, jid: str) -> JobStatus:
        """The status of a tracked job, as ``Client.status``."""
        return self._memory.status(jid)

    def result(self, jid: str, deadline: float = 0.0) -> Any:
        """What a tracked job returned, as ``Client.result``; ResultTimeout if it has not run."""
        return self._memory.result(jid)

    def history(self, jid: str) -> JobHistory | None:
        """The runs of a job, as ``Client.history``."""
        return self._memory.history(jid)

    def iteration(self, jid: str) -> dict[str, bytes]:
        """The state of a long job, as ``Client.iteration``."""
        return self._memory.iteration(jid)
