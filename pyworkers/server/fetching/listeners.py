"""Listeners: what a group tells the master, and asks it, while it fetches and settles jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyworkers.protocol.outcome import Report


@dataclass(frozen=True, slots=True)
class Listeners:
    """The functions of the master that a group calls for its events, and before it asks for jobs."""

    settled: Callable[[str, Report], None]
    """Redis has taken this report of a job of a queue."""
    interrupted: Callable[[int], None]
    """So many jobs run again, because their process ended and nothing shows that they were the reason."""
    lease_lost: Callable[[str], None]
    """A peer has recovered the lists of this identity."""
    saw_lease: Callable[[str, float], None]
    """The lease of this peer expires in so many seconds; 0 if it has expired, and jobs are in its lists."""
    may_fetch: Callable[[str], bool]
    """True if Redis has registered this identity: before, it refuses to hand out jobs."""
