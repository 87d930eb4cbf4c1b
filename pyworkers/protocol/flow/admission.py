"""Admission: the decisions of push.lua in Python, for ``pyworkers.testing``, which has no Redis.

Pure; a test compares both. It never holds jobs: the caller counts and removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pyworkers.errors import DuplicateJobError, QueueFullError
from pyworkers.protocol.conditions import Others, UniqueLock
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect, Unlock


class _Holder(NamedTuple):
    jid: str
    until: float
    """When the lock expires, in epoch seconds."""
    at: float | None
    replaceable: bool
    """The job was scheduled by a push that may replace it."""


class Admitted(NamedTuple):
    """The jobs that are pushed, the duplicates, and the jids of the scheduled jobs that are replaced."""

    jobs: list[PushedJob]
    others: Others
    replaced: set[str]


class Admission:
    """The locks of unique jobs."""

    def __init__(self) -> None:
        self._holders: dict[str, _Holder] = {}

    def admit(
        self,
        jobs: Sequence[PushedJob],
        now: float,
        waiting: Callable[[str], float],
        is_scheduled: Callable[[str], bool],
    ) -> Admitted:
        """Decide about the jobs of one push, and take the locks of those that are pushed.

        ``waiting`` counts the jobs in a queue; ``is_scheduled`` tells if a job is scheduled, by its jid.
        Raises QueueFullError and DuplicateJobError, and takes no lock then.
        """
        holders = {key: one for key, one in self._holders.items() if one.until > now}
        others: dict[str, str] = {}
        pushed: list[PushedJob] = []
        replaced: set[str] = set()
        sizes: dict[str, float] = {}
        full: QueueFullError | None = None

        def may_go(holder: _Holder) -> bool:
            if any(job.jid == holder.jid for job in pushed):
                return holder.at is not None
            return holder.replaceable and is_scheduled(holder.jid)

        for job in jobs:
            lock = job.conditions and job.conditions.lock
            if lock and (holder := holders.get(lock.key)):
                if not _takes_over(job, lock, holder, may_go):
                    others[job.jid] = holder.jid
                    continue
                replaced.add(holder.jid)
            if lock:
                may_be = job.at is not None and lock.on_duplicate == "replace"
                holders[lock.key] = _Holder(job.jid, now + lock.life_s, job.at, may_be)
            if job.at is None:
                size = sizes.get(job.queue, waiting(job.queue))
                if job.conditions and job.conditions.max_waiting and size >= job.conditions.max_waiting:
                    full = full or QueueFullError(job.queue, job.conditions.max_waiting)
                sizes[job.queue] = size + 1
            pushed.append(job)
        if full:
            raise full
        self._holders = holders
        return Admitted([job for job in pushed if job.jid not in replaced], others, replaced)

    def apply(self, effects: Iterable[Effect]) -> None:
        """Release the locks that these effects release."""
        for effect in effects:
            if isinstance(effect, Unlock):
                holder = self._holders.get(effect.key)
                if holder and holder.jid == effect.token:
                    del self._holders[effect.key]


def _takes_over(job: PushedJob, lock: UniqueLock, holder: _Holder, may_go: Callable[[_Holder], bool]) -> bool:
    """True if the job takes the place of the lock's holder. Raises DuplicateJobError."""
    if holder.jid == job.jid or lock.on_duplicate == "skip":
        return False
    if lock.on_duplicate == "raise":
        raise DuplicateJobError(holder.jid)
    return may_go(holder)
