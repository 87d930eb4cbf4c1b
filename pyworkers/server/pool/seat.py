"""Seat: the place of a worker in its group, and the descriptors that are opened for it.

Runs in the master. It starts no process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyworkers.ipc.page import Page, open_page


@dataclass(frozen=True, slots=True)
class Seat:
    """The place of a worker in its group: its number, how many jobs it runs at once, and its descriptors."""

    group: str
    member: int
    slots: int
    mode: str
    """How it runs them (worker/process.py)."""
    jobs: int
    """The descriptor of the workers' end of the job socket."""
    outcomes: int
    """The descriptor of the write end of the outcome pipe."""


def open_all(seat: Seat) -> tuple[Page, tuple[int, ...], int, int]:
    """The page, the descriptors for the process, and the master's ends of lifeline and presence pipe.

    Raises OSError.
    """
    opened: list[int] = []
    try:
        opened.append(os.dup(seat.jobs))
        opened.append(os.dup(seat.outcomes))
        opened.extend(os.pipe())
        opened.extend(os.pipe())
        page, memory = open_page(seat.slots)
    except OSError:
        for fd in opened:
            os.close(fd)
        raise
    jobs, outcomes, lifeline_end, lifeline, presence, presence_end = opened
    return page, (jobs, outcomes, lifeline_end, presence_end, memory), lifeline, presence
