"""Observing: calls what observes jobs, such as a tracer, and what it raises changes nothing (``requests``).

Used by the integrations, in programs that enqueue and in worker processes. The first exception of an observer
in a process is logged. It logs by the standard library, because programs that enqueue have their own log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from pyworkers.observing.readable import readable
from pyworkers.observing.requests import is_request

if TYPE_CHECKING:
    from pyworkers.protocol.outcome import Outcome

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class Observer:
    """The guard around one observer; ``name`` is what the log calls it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = False

    def see(self, step: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """Call one step of the observer; None if it raises."""
        try:
            return step(*args, **kwargs)
        except CancelledError:
            raise
        except BaseException as error:
            if is_request(error):
                raise
            self._say(readable(error))
            return None

    def _say(self, error: BaseException) -> None:
        if self._said:
            return
        self._said = True
        about = {"observer": self._name, "hint": "the jobs run without it; logged once in a process"}
        try:
            _log.error("observer.failed", extra=about, exc_info=(type(error), error, error.__traceback__))
        except BaseException as failed:  # a handler of the application's
            if is_request(failed):
                raise


class ObservedRun(ABC):
    """One run of a job as an observer sees it: ``with run: return run.returned(call_next(message))``."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        try:
            if error is not None:
                self.raised(error)
        finally:
            self.end()

    @abstractmethod
    def returned(self, outcome: Outcome) -> Outcome:
        """Note the outcome, and return it."""

    @abstractmethod
    def raised(self, raised: BaseException) -> None:
        """Note what the run has raised."""

    @abstractmethod
    def end(self) -> None:
        """Note the end of the run."""
