"""Middleware: an application's links around a handler and around an enqueue call.

Around a handler, in the worker process: a link is a callable ``(message, call_next)``. It returns the Outcome
of ``call_next(message)``, that outcome with effects (``Outcome.with_effects``), another Outcome, or None for
done. Built-in links are in worker/links/. Around an enqueue call, in the program that enqueues (*client
middleware*): a link is a callable ``(draft, call_next)`` and returns the jid of ``call_next(draft)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyworkers.protocol.draft import Draft, JobDraft, PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Outcome

CallNext = Callable[[Message], Outcome]
Middleware = Callable[[Message, CallNext], Outcome | None]
EffectsOf = Callable[[Message, Outcome], Iterable[Effect]]
"""The effects of a job, by its message and its outcome, which may be that of a failure."""


ClientCallNext = Callable[[JobDraft], str]
ClientMiddleware = Callable[[JobDraft, ClientCallNext], str]


def build(links: Sequence[Middleware], handler: Callable[[Message], object]) -> CallNext:
    """Put the links around the handler, whose result is ignored, the first outermost; one callable."""

    def innermost(message: Message) -> Outcome:
        handler(message)
        return DONE

    call: CallNext = innermost
    for link in reversed(links):
        call = _bind(link, call)
    return call


def _bind(link: Middleware, call_next: CallNext) -> CallNext:
    def call(message: Message) -> Outcome:
        outcome = link(message, call_next)
        if outcome is None:
            return DONE
        if not isinstance(outcome, Outcome):
            raise TypeError(f"middleware {name_of(link)} returned {outcome!r}, not an Outcome or None")
        return outcome

    return call


def pass_client_links(
    links: Sequence[ClientMiddleware], plan: Draft, args: Sequence[Any], now: float, path: str
) -> tuple[str, list[PushedJob]]:
    """Pass one job through client links, the first outermost; returns their jid and the jobs to push.

    There is no job if a link has not called the next one. ``path`` names ``args`` in errors.
    """
    jobs: list[PushedJob] = []
    first = plan.one(args)

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


def name_of(link: Middleware | ClientMiddleware) -> str:
    """The name of a link for display: a function's name, or the class of a callable object."""
    return getattr(link, "__qualname__", None) or type(link).__name__
