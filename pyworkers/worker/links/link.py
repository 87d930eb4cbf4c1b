"""Link: the one shape of the built-in links around a job.

A built-in link is a function of what it calls: ``link(call_next) -> run``, where both are called with the
Execution. It always returns an Outcome. An application's middleware, ``(message, call_next) -> outcome``, is
called with one argument more for each job, and its result is checked (middleware.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution

Run = Callable[[Execution], Outcome]


class Link(NamedTuple):
    """A built-in link and the name under which it is shown."""

    name: str
    around: Callable[[Run], Run]


def wrap(links: Sequence[Link], run: Run) -> Run:
    """One callable out of the links, the first outermost, around ``run``."""
    for link in reversed(links):
        run = link.around(run)
    return run
