"""Clock: the time of enqueue calls, of all clients of this process.

Used in programs that enqueue. It is the system's, except where ``pyworkers.testing`` has set another. A
module and not an object, so that ``clock.time()`` costs what ``time.time()`` does, and so that a library that
replaces ``time.time`` in every module (freezegun) finds it here, too.
"""

from __future__ import annotations

import time as system
from collections.abc import Callable

time: Callable[[], float] = system.time
"""The time in epoch seconds."""


def follow(other: Callable[[], float] | None) -> None:
    """Take the time from ``other``; None: from the system again."""
    global time
    time = other or system.time
