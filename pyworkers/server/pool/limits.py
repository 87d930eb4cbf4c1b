"""Limits: the time limits of a worker and of its fork server.

Used in the master's event loop. The configuration does not set them; tests do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits, in seconds."""

    overdue_s: float = 30.0
    """The time for hooks at the start and at the end of a worker, before they are logged as overdue."""
    unreported_s: float = 1.0
    """From the end of a worker's pipe to the report of its exit. A fork server reports it in milliseconds,
    and the master collects orphans every half second. After this time the worker is killed; after the same
    time again, it counts as ended, without an exit status.
    """
    stalled_s: float = 15.0
    """The time to read a job. A worker that needs longer is suspended, or hangs in clean-up: it is killed."""


DEFAULTS = Limits()
