"""Tallies of jobs that have run, as a server writes them."""

from __future__ import annotations

from pyworkers.protocol.histogram import Tally


def tally(*durations_ms: int, failed: int = 0) -> Tally:
    """These jobs, and this many that failed."""
    found = Tally()
    for ms in durations_ms:
        found.add(ms, failed=False)
    for _ in range(failed):
        found.add(0, failed=True)
    return found
