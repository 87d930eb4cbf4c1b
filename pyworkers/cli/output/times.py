"""Times for people: how far away, and in local time; with ``--utc`` exact, for programs and comparisons.

Run by the commands. Pure, but for the local time zone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from pyworkers.text import TIME_UNITS_S


@dataclass(frozen=True, slots=True)
class Times:
    """The form in which a command prints times. All moments are in epoch seconds."""

    utc: bool = False

    def cell(self, moment: float | None, now: float) -> str:
        """A moment in a table: ``in 3 min``, ``2 h ago``, or in UTC; empty for None."""
        if moment is None:
            return ""
        return (_utc(moment) if self.utc else distance(moment - now)) or f"{moment:g}"

    def exact(self, moment: float) -> str:
        """The local time, or in UTC."""
        return (_utc(moment) if self.utc else _local(moment)) or f"{moment:g}"

    def full(self, moment: float, now: float) -> str:
        """A moment by itself: the local time and how far away it is, or in UTC."""
        if self.utc:
            return self.cell(moment, now)
        local = _local(moment)
        return f"{local} ({distance(moment - now)})" if local else f"{moment:g}"


def distance(seconds: float) -> str:
    """How far away a moment is: ``in 3 min``, ``2 h ago``, ``now``; empty for an infinite time."""
    if not math.isfinite(seconds):
        return ""
    for unit, size, least in TIME_UNITS_S:
        if abs(seconds) >= least:
            words = f"{int(abs(seconds) // size)} {unit}"
            return f"in {words}" if seconds > 0 else f"{words} ago"
    return "now"


def utc_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--utc``; the command gets a Times as ``times``."""
    option = click.option(
        "--utc",
        "times",
        is_flag=True,
        callback=lambda _context, _option, given: Times(given),
        help="Print exact times in UTC.",
    )
    return option(command)


def _utc(moment: float) -> str:
    """ISO 8601 with milliseconds; empty for a moment outside of the calendar."""
    try:
        text = datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return ""
    return text.removesuffix("+00:00") + "Z"


def _local(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return ""
