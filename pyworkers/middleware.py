"""Middleware: an application's links around a handler and around an enqueue call.

Around a handler, in the worker process: a link is a callable ``(message, call_next)``. It returns the Outcome
of ``call_next(message)``, that outcome with effects (``Outcome.with_effects``), another Outcome, or None for
done. Links and jobs may be ``def`` or ``async def``, and they mix: a ``def`` link calls ``call_next``, an
``async def`` link awaits it, also if the next one is of the other kind (worker/bridge.py). The steps before
and after them are in worker/steps/. Around an enqueue call, in the program that enqueues (*client
middleware*): a link is a callable ``(draft, call_next)`` and returns the jid of ``call_next(draft)``.
"""

from __future__ import annotations

import inspect
from asyncio import isfuture
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from pyworkers.protocol.draft import Bulk, Draft, JobDraft, PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.rules import KEEP_RESULT
from pyworkers.protocol.flow.track import encode_result
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Outcome

CallNext = Callable[[Message], Outcome]
"""The rest of the chain, for a ``def`` link: it runs the next link or the job, and returns the outcome."""
AsyncCallNext = Callable[[Message], Coroutine[Any, Any, Outcome]]
Middleware = Callable[[Message, CallNext], Outcome | None]
"""A ``def`` link around a job: the outcome of ``call_next(message)``, another one, or None for done."""
AsyncMiddleware = Callable[[Message, AsyncCallNext], Awaitable[Outcome | None]]
AnyMiddleware = Middleware | AsyncMiddleware
EffectsOf = Callable[[Message, Outcome], Iterable[Effect]]
"""The effects of a job, by its message and its outcome, which may be a failure."""


# Classes of objects that do nothing until they are run.
_UNRUN = (Awaitable, AsyncGenerator, Generator)

ClientCallNext = Callable[[JobDraft], str]
ClientMiddleware = Callable[[JobDraft, ClientCallNext], str]


class DualLink:
    """A link in two forms: ``def`` around ``def`` code, ``async def`` around ``async def`` code.

    A link of one form needs another thread or loop around code of the other form; this one never does.
    ``both``: it is once more, in its other form, around inner code of that form, which may run on another
    thread.
    """

    def __init__(self, link: Middleware, async_link: AsyncMiddleware, *, both: bool = False) -> None:
        self.link = link
        self.async_link = async_link
        self.both = both
        self.__qualname__ = name_of(link)

    def __call__(self, message: Message, call_next: CallNext) -> Outcome | None:
        """The ``def`` form."""
        return self.link(message, call_next)


class CallBridge(Protocol):
    """Lets ``def`` code call ``async def`` code, and the reverse."""

    def for_def(self, call: AsyncCallNext) -> CallNext:
        """A function that waits for the result of ``call``."""
        ...

    def for_async(self, call: CallNext, *, has_async: bool) -> AsyncCallNext:
        """A coroutine function that runs ``call``, which itself waits for async code if ``has_async``."""
        ...


class InnerPart(NamedTuple):
    """A job and the inner ones of its links, as one function."""

    call: Any
    """A CallNext or, if ``is_async``, an AsyncCallNext."""
    is_async: bool
    has_async: bool
    """True if any of it is async."""


def build(
    links: Sequence[AnyMiddleware],
    job: Callable[[Message], object],
    bridge: CallBridge,
    *,
    is_async: bool = False,
    dropped: Callable[[Message], None] = lambda _: None,
) -> InnerPart:
    """Put the links around the job, the first outermost. Its result is kept for a field that needs it.

    ``is_async``: the job returns an awaitable. ``dropped`` is called for a value that is not kept.
    """
    part = (
        InnerPart(_awaited(job, dropped), True, True)
        if is_async
        else InnerPart(_called(job, dropped), False, False)
    )
    for index in reversed(range(len(links))):
        part = _around(links[index], part, bridge, links[:index])
    return part


def _called(job: Callable[[Message], object], dropped: Callable[[Message], None]) -> CallNext:
    def innermost(message: Message) -> Outcome:
        result = job(message)
        if result is None:
            return DONE
        if inspect.iscoroutine(result):
            # It would never run, and the job would count as done.
            result.close()
            raise TypeError(
                "the job is a def function that returned a coroutine: declare an async def function"
            )
        return _returned(message, result, dropped)

    return innermost


def _awaited(job: Callable[[Message], Any], dropped: Callable[[Message], None]) -> AsyncCallNext:
    async def innermost(message: Message) -> Outcome:
        result = await job(message)
        return DONE if result is None else _returned(message, result, dropped)

    return innermost


def _returned(message: Message, result: object, dropped: Callable[[Message], None]) -> Outcome:
    """The outcome of a job that returned a value, which is kept if its envelope asks for it."""
    if isinstance(result, _UNRUN) and not isfuture(result):
        # It would never run, and the job would count as done.
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"the job returned an object of type {type(result).__name__}, which has not run: "
            "await it, or run it, in the job"
        )
    if KEEP_RESULT.isdisjoint(message.data):
        dropped(message)
        return DONE
    return replace(DONE, result=encode_result(result))


def _around(
    link: AnyMiddleware, inner: InnerPart, bridge: CallBridge, outer: Sequence[AnyMiddleware] = ()
) -> InnerPart:
    if isinstance(link, DualLink):
        link = link.async_link if inner.is_async else link.link
    if is_async(link) is not inner.is_async:
        for dual in reversed(outer):
            if isinstance(dual, DualLink) and dual.both:
                inner = _around(dual, inner, bridge)
    if is_async(link):
        has_async = inner.has_async
        call_next = inner.call if inner.is_async else bridge.for_async(inner.call, has_async=has_async)
        return InnerPart(_bind_async(link, call_next), True, True)
    call_next = bridge.for_def(inner.call) if inner.is_async else inner.call
    return InnerPart(_bind(link, call_next), False, inner.has_async)


def _bind(link: Any, call_next: CallNext) -> CallNext:
    def call(message: Message) -> Outcome:
        outcome = link(message, call_next)
        return outcome if outcome.__class__ is Outcome else _checked(link, outcome)

    return call


def _bind_async(link: Any, call_next: AsyncCallNext) -> AsyncCallNext:
    async def call(message: Message) -> Outcome:
        outcome = await link(message, call_next)
        return outcome if outcome.__class__ is Outcome else _checked(link, outcome)

    return call


def _checked(link: AnyMiddleware, outcome: Any) -> Outcome:
    if outcome is None:
        return DONE
    if not isinstance(outcome, Outcome):
        raise TypeError(f"middleware {name_of(link)} returned {outcome!r}, not an Outcome or None")
    return outcome


def is_async(function: object) -> bool:
    """True for an ``async def`` function, a partial of one, and an object with an async ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    return any(
        map(inspect.iscoroutinefunction, (function, getattr(type(function), "__call__", None)))  # noqa: B004
    )


def pass_client_links(
    links: Sequence[ClientMiddleware],
    plan: Draft,
    args: Sequence[Any],
    now: float,
    path: str,
    bulk: Bulk | None = None,
) -> tuple[str, list[PushedJob]]:
    """Pass one job through client links, the first outermost; returns their jid and the jobs to push.

    There is no job if a link has not called the next one. ``path`` names ``args`` in errors.
    """
    jobs: list[PushedJob] = []
    first = plan.one(args, bulk)

    def innermost(draft: JobDraft) -> str:
        job = plan.job(args, now, path) if draft is first else draft.job(now, path)
        jobs.append(job)
        return job.jid

    call: ClientCallNext = innermost
    for link in reversed(links):
        call = _bind_client(link, call)
    return call(first), jobs


def _bind_client(link: ClientMiddleware, call_next: ClientCallNext) -> ClientCallNext:
    def call(draft: JobDraft) -> str:
        jid = link(draft, call_next)
        if not isinstance(jid, str):
            raise TypeError(f"client middleware {name_of(link)} returned {jid!r}, not a jid")
        return jid

    return call


def name_of(link: AnyMiddleware | ClientMiddleware) -> str:
    """The name of a link for display: a function's name, or the class of a callable object."""
    return getattr(link, "__qualname__", None) or type(link).__name__
