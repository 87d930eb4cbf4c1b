"""Travel: the time to which ``travel`` moves the clock of a test.

Pure; used in the test's process.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypedDict

from pyworkers.protocol import timestamps


class Duration(TypedDict, total=False):
    """The parts of a duration, as ``timedelta`` takes them."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float


def destination(to: datetime | float | None, duration: Duration, now: float) -> float:
    """The new time of the clock, in epoch seconds: ``to``, or this long after ``now``.

    Raises ValueError for the past, TypeError without exactly one of both, and BadArgumentError for a datetime
    without a time zone.
    """
    if (to is None) == (not duration):
        raise TypeError("travel takes either a duration or a time: travel(hours=2), travel(to=deadline)")
    there = now + timedelta(**duration).total_seconds() if to is None else timestamps.due(to)
    if there < now:
        raise ValueError(f"the clock cannot be moved back by {now - there:g} s")
    return there
