"""Ending: one end of a job's run or wait, with the facts that the rules of flow/ need.

Pure; made by the worker process, by the master for a job whose worker did not report it, and by ``api`` for a
job that it removes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.status import JobState


class Ending(StrEnum):
    """How a run or a wait ended."""

    DONE = "done"
    RETRY = "retry"
    """It failed, and waits in ``retry``."""
    MISFIT = "misfit"
    """It does not fit this server, waits in ``retry`` for another one, and counts no attempt."""
    DEAD = "dead"
    """It failed for good, or was killed in its set or queue, and is kept in ``dead``."""
    DISCARDED = "discarded"
    """It is dropped because it chose that: by ``Discard`` or ``discard_on``."""
    DROPPED = "dropped"
    """It failed for good and is dropped."""
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DELETED = "deleted"
    """It was removed from its queue or set."""
    REPLACED = "replaced"
    """It has not run, and a newer job with its lock takes its place."""
    PUT_OFF = "put off"
    """It returns to ``schedule`` and counts no attempt."""
    GIVEN_BACK = "given back"
    """It returns to its queue and counts no attempt."""

    @property
    def state(self) -> JobState:
        """The state of the job after it."""
        return _AFTER[self][0]

    @property
    def member(self) -> str | None:
        """How a batch counts a member that ends so (``CountMember``); None: it does not."""
        return _AFTER[self][1]

    @property
    def final(self) -> bool:
        """True if the job will not run again by itself."""
        return self.state.final


_AFTER: Mapping[Ending, tuple[JobState, str | None]] = {
    Ending.DONE: (JobState.DONE, "done"),
    Ending.RETRY: (JobState.RETRYING, "failed"),
    Ending.MISFIT: (JobState.RETRYING, None),
    Ending.DEAD: (JobState.DEAD, "dead"),
    Ending.DISCARDED: (JobState.FAILED, "done"),
    Ending.DROPPED: (JobState.FAILED, "dropped"),
    Ending.CANCELLED: (JobState.CANCELLED, "cancelled"),
    Ending.EXPIRED: (JobState.EXPIRED, "expired"),
    Ending.DELETED: (JobState.CANCELLED, "deleted"),
    Ending.REPLACED: (JobState.CANCELLED, "replaced"),
    Ending.PUT_OFF: (JobState.SCHEDULED, None),
    Ending.GIVEN_BACK: (JobState.WAITING, None),
}
"""The state after each end, and how a batch counts it."""
_OF_FATE = {
    Fate.DONE: Ending.DONE,
    Fate.RETRY: Ending.RETRY,
    Fate.DEAD: Ending.DEAD,
    Fate.DISCARD: Ending.DROPPED,
    Fate.REQUEUE: Ending.GIVEN_BACK,
    Fate.SNOOZE: Ending.PUT_OFF,
    Fate.CANCELLED: Ending.CANCELLED,
    Fate.EXPIRED: Ending.EXPIRED,
}


def ending_of(outcome: Outcome) -> Ending:
    """The ending of a run with this outcome."""
    if outcome.chosen:
        return Ending.DISCARDED
    return Ending.MISFIT if outcome.misfit and outcome.fate is Fate.RETRY else _OF_FATE[outcome.fate]


@dataclass(frozen=True, slots=True)
class Ended:
    """A job at its end. ``now`` is in epoch seconds; ``result`` is JSON, None unless the job returned."""

    ending: Ending
    data: Mapping[str, Any]
    """The envelope."""
    jid: str
    queue: str
    job_class: str
    now: float
    error_class: str = ""
    error_message: str = ""
    result: bytes | None = None
    traceback: str = ""
    """As Python prints it, for the rule that keeps it (history.py)."""
    may_have_log: bool = False
    """True if the job may have written to its log, and the worker does not report that."""
