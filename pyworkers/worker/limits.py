"""The soft time limit: raises JobTimeout inside a job that runs too long.

Runs in the worker process, as the innermost built-in link. It is a courtesy that lets a job clean up; the
limit that holds is the master's, which kills the worker a little later.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pyworkers.errors import JobTimeout
from pyworkers.middleware import CallNext
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome


def limited(
    call_next: CallNext,
    default_s: float,
    announce: Callable[[float], None],
    ask: Callable[[BaseException], None],
) -> CallNext:
    """The link: it limits the job to its message's ``timeout``, or else to ``default_s``; 0 is no limit.

    ``announce`` is called with the limit in seconds before the job starts, ``ask`` raises in the job.
    """

    def limit(message: Message) -> Outcome:
        seconds = _own_limit(message) or default_s
        if not seconds:
            return call_next(message)
        announce(seconds)
        with _alarm(seconds, ask):
            return call_next(message)

    return limit


def _own_limit(message: Message) -> float:
    own = message.data.get("timeout")
    if own is None:
        return 0.0
    valid = isinstance(own, int | float) and not isinstance(own, bool) and 0 < own < 1e9
    return float(own) if valid else 0.0


@contextmanager
def _alarm(seconds: float, ask: Callable[[BaseException], None]) -> Iterator[None]:
    armed = True

    def ring(_number: int, _frame: FrameType | None) -> None:
        # The alarm may have been on its way while the job ended.
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
