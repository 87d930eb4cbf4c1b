"""Checkpoints: lets a long job continue where it was, after a stop, a reload, a failure or a crash.

Runs in jobs; outside of one, nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Generic, TypeVar, cast

from pyworkers.client import Client
from pyworkers.protocol.message import Checkpointing, current_run

T = TypeVar("T")


class Checkpoint(Generic[T]):
    """The last saved value of a job, in ``value``."""

    def __init__(self, value: T, notes: Checkpointing | None) -> None:
        self.value = value
        self._notes = notes

    def save(self, value: T) -> None:
        """Save how far the job is. Cheap: at most one value a second is written, and the last one.

        Raises Interrupted if the job must continue elsewhere, because the server stops or has new code: the
        job is put back at the head of its queue. Raises JobTimeout and JobCancelled where they cannot be
        raised elsewhere (mode ``thread``), and BadArgumentError for a value that is not JSON or too large.
        """
        self.value = value
        if self._notes is not None:
            self._notes.save(value)

    async def asave(self, value: T) -> None:
        """As ``save``."""
        self.save(value)


def checkpoint(default: T) -> Checkpoint[T]:
    """The checkpoint of the running job: its last saved value, or ``default`` at the first start.

    One for each job: a second call in a run returns what the run has saved. Reads Redis once. Raises what
    ``save`` raises, and RedisUnavailableError.
    """
    try:
        run = current_run()
    except LookupError:
        return Checkpoint(default, None)
    notes = run.checkpoint()
    value = cast(T, notes.open(partial(_stored, run.message.jid, run.message.queue), default))
    return Checkpoint(value, notes)


def _stored(jid: str, queue: str) -> Mapping[str, bytes]:
    with Client() as client:
        return client.saved(jid, queue)
