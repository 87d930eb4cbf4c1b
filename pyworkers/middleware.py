"""Middleware: an application's links around a handler, and how they are put together.

Runs in the worker process (and in tests, through pyworkers.testing). An application's link is a callable
``(message, call_next)``. It returns the Outcome of ``call_next(message)``, that outcome with effects
(``Outcome.with_effects``), another Outcome, or None, which means done. Built-in links are in worker/links/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyworkers.protocol.effects import Effect
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Outcome

CallNext = Callable[[Message], Outcome]
Middleware = Callable[[Message, CallNext], Outcome | None]
EffectsOf = Callable[[Message, Outcome], Iterable[Effect]]
"""The effects of a job, by its message and its outcome, which may be that of a failure."""


def build(links: Sequence[Middleware], handler: Callable[[Message], object]) -> CallNext:
    """One callable out of the links, the first outermost, around the handler, whose result is ignored."""

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


def name_of(link: Middleware) -> str:
    """The name that is shown: a function's, or the class of a callable object."""
    return getattr(link, "__qualname__", None) or type(link).__name__
