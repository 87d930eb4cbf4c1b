"""Conditions: what a push depends on, and the writes that belong to it, as values.

Pure; made by the clients from a job's options, applied by ``push.lua`` in the round trip that pushes the job.
Nearly all jobs have none: they are pushed by plain commands (store/routes.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pyworkers.protocol.effects import NoteRun

OnDuplicate = Literal["skip", "raise", "replace"]
"""What a push does if the lock is held: it keeps the job that holds it, refuses the push, or replaces that
job if it is still scheduled, and keeps it otherwise."""
Others = Mapping[str, str]
"""For each job of a push that was not pushed: its jid → the jid of the job that holds its lock."""
NO_OTHERS: Others = {}


SCORE_SUFFIX = ":at"


class UniqueLock(NamedTuple):
    """A STRING with the jid of the job that holds it. ``key`` is named as effects name keys."""

    key: str
    life_s: float
    on_duplicate: OnDuplicate = "skip"

    @property
    def life_ms(self) -> int:
        """The TTL in ms, at least 1."""
        return max(1, int(self.life_s * 1000))

    @property
    def score_key(self) -> str:
        """The key of the score under which the job is scheduled that holds the lock."""
        return f"{self.key}{SCORE_SUFFIX}"


class Conditions(NamedTuple):
    """The conditions of one job."""

    lock: UniqueLock | None = None
    max_waiting: int = 0
    """The most jobs in its queue, this one included, at which it is pushed; 0: any number."""
    wait_s: float = 0.0
    """How long the push waits for room in the queue before it fails."""
    status_s: int = 0
    """How long the status of the job is kept until a server changes it; 0: it has none."""
    history: bool = False
    """The status keeps the job as it is pushed."""
    batch: str = ""
    """The batch of which it is a member; empty for none."""
    run: NoteRun | None = None
    """The run of a cron entry that it is.

    This and the fields before are written with the job: never for a duplicate or into a full queue.
    """
