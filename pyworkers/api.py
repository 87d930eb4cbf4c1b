"""The API: what people look at, as plain values.

Used by the command line and by users' programs; the server never imports it. Reads Redis when asked, keeps
no connection, and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyworkers import envelope, timestamps
from pyworkers.config import RedisConfig
from pyworkers.errors import BadMessageError
from pyworkers.store.reader import QueueView, overview


@dataclass(frozen=True, slots=True)
class Stats:
    """How many jobs there are in each state.

    ``processed`` and ``failed`` count since the counters began, as Sidekiq's do, and lag by a heartbeat;
    ``busy`` are the jobs that pyworkers servers have in progress, ``processes`` the servers that are alive.
    """

    processed: int
    failed: int
    enqueued: int
    busy: int
    scheduled: int
    retries: int
    dead: int
    processes: int

    @classmethod
    def fetch(cls, config: RedisConfig) -> Stats:
        """The counts now. Raises RedisUnavailableError and StoreError."""
        seen = overview(config)
        return cls(
            processed=seen.processed,
            failed=seen.failed,
            enqueued=sum(queue.size for queue in seen.queues),
            busy=sum(queue.in_progress for queue in seen.queues),
            scheduled=seen.scheduled,
            retries=seen.retries,
            dead=seen.dead,
            processes=seen.processes,
        )


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue; ``size`` jobs wait, and ``next_enqueued_at`` (epoch seconds) is the time of the next one."""

    name: str
    size: int
    in_progress: int
    next_enqueued_at: float | None

    @classmethod
    def all(cls, config: RedisConfig) -> list[Queue]:
        """All queues that were ever pushed to or are served now, by name.

        Raises RedisUnavailableError and StoreError.
        """
        return [cls._of(queue) for queue in overview(config).queues]

    def latency_s(self, now: float) -> float:
        """For how many seconds the next job has been waiting; 0 if none waits or it does not say."""
        return 0.0 if self.next_enqueued_at is None else max(0.0, now - self.next_enqueued_at)

    @classmethod
    def _of(cls, view: QueueView) -> Queue:
        enqueued_at = None if view.next_job is None else _enqueued_at(view.next_job)
        return cls(view.name, view.size, view.in_progress, enqueued_at)


def _enqueued_at(raw: bytes) -> float | None:
    try:
        return timestamps.read(envelope.decode(raw).get("enqueued_at"))
    except BadMessageError:
        return None
