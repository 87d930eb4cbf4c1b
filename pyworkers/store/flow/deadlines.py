"""Deadlines: the clock by which a wait ends, also in a test that has frozen the clocks of Python."""

from __future__ import annotations

from time import CLOCK_MONOTONIC, clock_gettime


def now_s() -> float:
    """Seconds of the system's monotonic clock. ``time.monotonic`` does not move under freezegun."""
    return clock_gettime(CLOCK_MONOTONIC)
