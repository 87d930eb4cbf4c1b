"""Hooks: the middleware of an application, and its functions for events such as a start.

Filled while the application is imported; read by the fork server, the worker processes and the clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyworkers.functions import check_client_link, check_function, check_takes
from pyworkers.middleware import AnyMiddleware, ClientMiddleware, EffectsOf
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome

F = TypeVar("F", bound=Callable[[], object])
X = TypeVar("X", bound=Callable[[Message, BaseException | None], object])
E = TypeVar("E", bound=Callable[[Message, BaseException | None, Outcome], object])
L = TypeVar("L", bound=AnyMiddleware)
H = TypeVar("H", bound=Callable[..., object])
C = TypeVar("C", bound=ClientMiddleware)

KINDS = ("on_startup", "on_shutdown", "before_start", "during_drain", "on_error", "on_exhausted")


class Hooks:
    """The part of ``Worker`` that is called around jobs and processes."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., object]]] = {kind: [] for kind in KINDS}
        self.links: list[AnyMiddleware] = []
        """The global middleware, the outermost first."""
        self.client_links: list[ClientMiddleware] = []
        """The client middleware, the outermost first."""
        self.effects: list[EffectsOf] = []
        """For plug-ins: called in the worker process for each outcome, also of a job that raised."""

    def middleware(self, link: L) -> L:
        """Put a link around every job: ``(message, call_next) -> outcome``. The first one is outermost.

        A ``def`` link calls ``call_next``, an ``async def`` link awaits it, also if the next link or the job
        is of the other kind. Where a process or thread runs one job at a time, async code runs on an event
        loop of that thread, and ``def`` code in the thread itself. In an async group, ``def`` links and jobs
        run on threads of the process, and wait there while the async code inside them runs on its loop.
        """
        check_function(link, "a middleware", may_be_async=True)
        check_takes(link, "a middleware", "message", "call_next")
        self.links.append(link)
        return link

    def client_middleware(self, link: C) -> C:
        """Put a link around every enqueue call: ``(draft, call_next) -> jid``. The first one is outermost.

        It is called once for each job, in the program that enqueues, before anything is written. For the job
        of a cron slot, that is a worker process of the server. It is not called for retries. It returns the
        jid of ``call_next(draft)`` or, without this call, "": then the job is not enqueued.
        ``draft.with_extra(tenant=7)`` adds a field.
        """
        check_client_link(link)
        self.client_links.append(link)
        return link

    def on_startup(self, function: F) -> F:
        """Call the function in each worker process before its first job.

        It may be ``async def``: it runs on the loop of the process, on which its async jobs run; in mode
        ``thread``, each thread has another one.
        """
        return self._hook("on_startup", function, may_be_async=True)

    def on_shutdown(self, function: F) -> F:
        """Call the function in each worker process after its last job, unless it is killed.

        It may be ``async def``, as a function of ``on_startup`` may.
        """
        return self._hook("on_shutdown", function, may_be_async=True)

    def before_start(self, function: F) -> F:
        """Call the function once, before the first worker process is forked; it must not start threads."""
        return self._hook("before_start", function)

    def during_drain(self, function: F) -> F:
        """Call the function once when the server begins to stop, while the last jobs run."""
        return self._hook("during_drain", function)

    def on_error(self, function: E) -> E:
        """Call ``function(message, error, outcome)`` in a worker process after each failed run of a job.

        ``error`` is what ended the run: the job's exception, JobTimeout, or WorkerLost for a run that ended
        with its worker process; None if a link returned a failed outcome. It may be ``async def``. An
        exception in it is logged, and does not change the outcome. Snooze, a cancellation and a stop are not
        failures.
        """
        return self._hook("on_error", function, "message", "error", "outcome", may_be_async=True)

    def on_exhausted(self, function: X) -> X:
        """Call ``function(message, error)`` in a worker process for each failed job that is not tried again.

        ``error`` is None if no exception ended the job.
        """
        return self._hook("on_exhausted", function, "message", "error")

    def hook_counts(self) -> dict[str, int]:
        """The number of hooks of each kind, for the manifest."""
        return {kind: len(functions) for kind, functions in self._hooks.items()}

    def hooks(self, kind: str) -> tuple[Callable[..., object], ...]:
        """The hooks of one kind, in the order of their declaration."""
        return tuple(self._hooks[kind])

    def _hook(self, kind: str, function: H, *arguments: str, may_be_async: bool = False) -> H:
        check_function(function, kind, may_be_async=may_be_async)
        check_takes(function, kind, *arguments)
        self._hooks[kind].append(function)
        return function
