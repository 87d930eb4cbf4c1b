"""Start: the start of one run of a job, with the facts that the rules of flow/ need.

Pure; made by the worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class JobStart:
    """A job at its start. ``now`` is in epoch seconds."""

    data: Mapping[str, Any]
    """The envelope."""
    jid: str
    queue: str
    attempt: int
    """The number of earlier failures."""
    now: float
    worker: Callable[[], str] = str
    """The name of the worker process, ``HOSTNAME:PID``; a function, because few rules need it."""
