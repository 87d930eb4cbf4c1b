"""File limit: the master opens as many files as the system allows, and its children as many as it was given.

Used in the master, which has three descriptors for each worker process; the usual limit is 1024. User code
keeps that limit: a program that calls select(2) fails with higher descriptors.
"""

from __future__ import annotations

import resource
from contextlib import suppress

_GIVEN, _MOST = resource.getrlimit(resource.RLIMIT_NOFILE)


def lift() -> None:
    """Let this process open as many files as the system allows."""
    with suppress(ValueError, OSError):  # macOS refuses "infinity"
        resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST, _MOST))


def give_back(pid: int) -> None:
    """Give a child that has just been started the limit that this process was started with."""
    if hasattr(resource, "prlimit"):  # Linux
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_GIVEN, _MOST))
