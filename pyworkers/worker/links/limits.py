"""The soft time limit: raises JobTimeout inside a job that runs too long.

Runs in the worker process, as the innermost built-in link, in the main thread. The exception lets a job clean
up; the master enforces the limit and kills the worker a little later.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyworkers.errors import JobTimeout
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.link import Run

Announce = Callable[[int, float], None]
"""Called with the delivery and its limit in seconds, before the job starts."""


def limited(call_next: Run, default_s: float, announce: Announce) -> Run:
    """Put the limit around ``call_next``: the message's ``timeout``, or else ``default_s``; 0 is no limit."""

    def limit(execution: Execution) -> Outcome:
        own = execution.message.data.get("timeout")
        seconds = default_s if own is None else _own_limit(own) or default_s
        if not seconds:
            return call_next(execution)
        announce(execution.delivery, seconds)
        with _alarm(seconds, execution.ask):
            return call_next(execution)

    return limit


def _own_limit(own: object) -> float:
    """The limit in the message, in seconds; 0 for an invalid value."""
    if isinstance(own, bool) or not isinstance(own, int | float):
        return 0.0
    return float(own) if 0 < own < 1e9 else 0.0


@contextmanager
def _alarm(seconds: float, ask: Callable[[BaseException], None]) -> Iterator[None]:
    armed = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        # The signal may have been sent before the timer was stopped, and arrive after the job.
        if armed:
            ask(JobTimeout(f"the job ran longer than {seconds:g} s"))

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
