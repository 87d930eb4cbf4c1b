"""Interception: other destinations of pushed jobs than Redis: an open batch, and the transport of a test.

Used by both clients in the program that enqueues. It knows no Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from pyworkers.enqueueing import clock
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus, CancelledBatch
from pyworkers.protocol.status import JobStatus

if TYPE_CHECKING:
    from pyworkers.config.fields import RedisConfig


class Transport(Protocol):
    """A destination of pushed jobs other than Redis."""

    def now(self) -> float:
        """The time of the enqueue calls, in epoch seconds."""
        ...

    def redis(self) -> Collection[RedisConfig] | None:
        """The Redis servers in which jobs are found and cancelled; None: those of the client."""
        ...

    def push(self, jobs: list[PushedJob], owner: object) -> Others | None:
        """Take the jobs, as ``Producer.push``; None: all of them.

        The enqueue call raises the errors of this call. ``owner``: see ``Client.owner``.
        """
        ...

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """Take a batch and its jobs."""
        ...

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        ...

    def cancel_batch(self, batch: str, owner: object) -> CancelledBatch | None:
        """Cancel a batch, as ``Batch.cancel``; None for an unknown one."""
        ...

    def batch_result(self, batch: str, deadline: float) -> Any:
        """The result of a batch that exists; waits as ``result``."""
        ...

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        ...

    def result(self, jid: str, deadline: float) -> Any:
        """As ``Client.result``, until ``deadline`` (monotonic); without a wait if no server runs the jobs."""
        ...

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        ...

    def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        ...

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """As ``Client.iteration``."""
        ...


class Gatherer(Protocol):
    """Takes the jobs that are enqueued inside the ``with`` of a batch."""

    def takes(self, client: object) -> bool:
        """True if the jobs that this client pushes are members."""
        ...

    def gather(self, jobs: list[PushedJob], owner: object) -> Callable[[], None] | None:
        """Keep jobs until the end of the ``with``; or return a function that sends those that are kept.

        The caller calls it, in a thread if it must not block. ``owner``: see ``Client.owner``.
        """
        ...

    def gather_later(self, jobs: list[PushedJob], client: Any) -> Callable[[], object] | None:
        """A function that adds the jobs, also after the end of the ``with``; None if they are kept now.

        For a client whose pushes wait for the end of a transaction.
        """
        ...


gathering: ContextVar[Gatherer | None] = ContextVar("pyworkers_batch", default=None)
"""The batch whose ``with`` is open in this context."""


# Module-level state, because pyworkers.testing intercepts the pushes of all clients, in every thread.
_interceptor: Transport | None = None


def intercept(transport: Transport | None) -> Transport | None:
    """Redirect the pushes of all clients of this process to ``transport``; None: to Redis again.

    Returns the previous transport, which the caller restores.
    """
    global _interceptor
    previous, _interceptor = _interceptor, transport
    clock.follow(transport.now if transport else None)
    return previous


def interceptor() -> Transport | None:
    """The transport to which the pushes of this process are redirected, if any."""
    return _interceptor
