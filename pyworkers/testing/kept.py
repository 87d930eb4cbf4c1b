"""Kept: what Redis keeps apart from the jobs, for a test: locks, statuses, results and batches.

Used in the test's process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from pyworkers.plugins.memory import MemoryBatches
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.admission import Admission, Admitted
from pyworkers.protocol.flow.entry import entered
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.memory import EffectMemory
from pyworkers.protocol.flow.plans import BatchStatus
from pyworkers.protocol.status import JobStatus


class Kept(ABC):
    """The locks of unique jobs, status and results of tracked ones, and batches."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Begin with nothing kept."""
        self._admission = Admission()
        self._memory = EffectMemory(self.now)
        self._batches = MemoryBatches()

    @abstractmethod
    def now(self) -> float:
        """The time, in epoch seconds."""

    def _decide(
        self,
        jobs: list[PushedJob],
        now: float,
        waiting: Callable[[str], float],
        is_scheduled: Callable[[str], bool],
    ) -> Admitted:
        """Decide about pushed jobs (``Admission``), and write what belongs to their push."""
        admitted = self._admission.admit(jobs, now, waiting, is_scheduled)
        for job in admitted.jobs:
            if job.conditions is not None:
                self._apply(entered(job.queue, job.payload, job.jid, job.at, job.conditions))
        return admitted

    def _apply(self, effects: Iterable[Effect]) -> None:
        """Apply the effects of a start, a progress or an end."""
        effects = tuple(effects)
        self._admission.apply(effects)
        self._memory.apply(effects)

    def status(self, jid: str) -> JobStatus:
        """The status of a tracked job, as ``Client.status``."""
        return self._memory.status(jid)

    def result(self, jid: str, deadline: float = 0.0) -> Any:
        """What a tracked job or a batch returned, as ``Client.result``; ResultTimeout if it has not ended."""
        if self._batches.status(jid):
            return self._batches.outcome(jid)
        return self._memory.result(jid)

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        return self._batches.status(batch)

    def batch_result(self, batch: str, deadline: float) -> Any:
        """What a batch has returned; raises ResultTimeout if it has not ended."""
        return self._batches.outcome(batch)

    def history(self, jid: str) -> JobHistory | None:
        """The runs of a job, as ``Client.history``."""
        return self._memory.history(jid)

    def logs(self, jid: str) -> list[LogLine]:
        """The log of a job, as ``Client.logs``."""
        return self._memory.logs(jid)

    def iteration(self, jid: str) -> dict[str, bytes]:
        """The state of a long job, as ``Client.iteration``."""
        return self._memory.iteration(jid)
