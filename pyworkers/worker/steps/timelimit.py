"""The time limit step: asks a job that runs too long to end, with JobTimeout.

Runs in the worker process, after the start. The request lets a job clean up; the master
enforces the limit and kills the worker a little later.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyworkers.errors import JobTimeout
from pyworkers.worker.execution import Execution, Timer

Announce = Callable[[int, float], None]
"""Called with the delivery and its limit in seconds, before the job starts."""
MakeTimer = Callable[[float, Callable[[BaseException], None]], Timer]
"""A timer that passes JobTimeout to the function after that many seconds."""

# 31 years. A lock waits 292 years at most, and raises for a longer time: that would end the thread with
# all time limits of a process.
_LONGEST_S = 1e9


class TimeLimit:
    """The limit of a handler's jobs: the message's ``timeout``, or else ``default_s``; 0 is no limit."""

    def __init__(self, default_s: float, announce: Announce, timer: MakeTimer) -> None:
        self._default_s = min(default_s, _LONGEST_S)
        self._announce = announce
        self._timer = timer

    def apply(self, execution: Execution) -> None:
        """Announce the limit of a job that begins, and start its timer."""
        own = execution.message.data.get("timeout")
        seconds = self._default_s if own is None else _own_limit(own) or self._default_s
        if seconds:
            self._announce(execution.delivery, seconds)
            execution.limit(self._timer(seconds, execution.ask))


def overdue(seconds: float) -> JobTimeout:
    """The request to a job that exceeds its limit."""
    return JobTimeout(f"the job ran longer than {seconds:g} s")


def _own_limit(own: object) -> float:
    """The limit in the message, in seconds; 0 for an invalid value."""
    if isinstance(own, bool) or not isinstance(own, int | float):
        return 0.0
    return float(own) if 0 < own < _LONGEST_S else 0.0


class Alarm:
    """A timer by SIGALRM, for a job in the main thread."""

    def __init__(self, seconds: float, ask: Callable[[BaseException], None]) -> None:
        self._seconds = seconds
        self._ask = ask
        self._before: Any = None

    def start(self) -> None:
        """Begin to count."""
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def stop(self) -> None:
        """Forget the limit, and put the former signal handler back."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        if self._before is not None:
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        # The signal may have been sent before the timer was stopped, and arrive after the job: then the
        # execution has ended, and ignores the request.
        self._ask(overdue(self._seconds))
