"""Limits: the time that a worker and its fork server have for what they must do.

Used in the master's event loop. The configuration does not set them; tests do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds."""

    overdue_s: float = 30.0
    """The time for hooks at the start and at the end of a worker, before they are logged as overdue."""
    unreported_s: float = 1.0
    """From the end of a worker's pipe to the report of its exit. A fork server reports it in milliseconds,
    and the master looks for orphans every half second. After that the end is counted without a status.
    """
    stalled_s: float = 15.0
    """The time to read a job. A worker that needs more is stopped, or hangs in clean-up."""


DEFAULTS = Limits()
