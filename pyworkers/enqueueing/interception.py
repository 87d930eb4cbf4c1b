"""Interception: what comes between a call of a client and Redis in the program that enqueues.

An open batch, or the transport of a test, takes the jobs instead. In a running event loop, a call of the
blocking client warns that it blocks the loop. Nothing here knows Redis.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import AbstractEventLoop, _get_running_loop
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

from pyworkers.enqueueing import clock
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus, CancelledBatch
from pyworkers.protocol.status import Cancelled, JobStatus

T = TypeVar("T")

_PACKAGE = str(Path(__file__).parent.parent)


class Transport(Protocol):
    """A destination of pushed jobs: the Redis servers (store/routes.py), or what replaces them."""

    def now(self) -> float:
        """The time of the enqueue calls, in epoch seconds."""
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

    def cancel(self, jid: str, owner: object) -> Cancelled:
        """As ``Client.cancel``."""
        ...

    def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
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


def warn_in_loop() -> None:
    """Warn once for each place in the code (RuntimeWarning) if this thread runs an event loop."""
    if _get_running_loop() is None:
        return
    frame: FrameType | None = sys._getframe(1)
    level, called = 2, ""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        called = frame.f_code.co_qualname
        frame, level = frame.f_back, level + 1
    warnings.warn(_advice(called), RuntimeWarning, stacklevel=level)


def running_loop() -> AbstractEventLoop:
    """The event loop of this thread. Raises RuntimeError if there is none, or one of another library."""
    if (loop := _get_running_loop()) is None:
        raise RuntimeError(
            "no event loop of asyncio is running: call the method without the a, in trio by "
            "trio.to_thread.run_sync(…)"
        )
    return loop


async def in_thread(function: Callable[[], T]) -> T:
    """The result of a call that may block; under ``fake()``, no other library's loop is in its way."""
    if interceptor() is not None and _get_running_loop() is None:
        return function()
    running_loop()
    return await asyncio.to_thread(function)


def _advice(called: str) -> str:
    """The message for the method that the application has called, e.g. ``Job.enqueue_in``."""
    kind, _, name = called.rpartition(".")
    if name == "__exit__":
        return "the end of a batch blocks the event loop: use async with"
    twin = f"AsyncClient.{name}" if kind in ("Producer", "Client", "Worker") else f"a{name}"
    return f"{name}() blocks the event loop: await {twin}()"
