"""ChainLink: the type of every built-in link around a job, and the function that combines links.

A built-in link takes the next function and returns one of the same kind: ``link(call_next) -> run``. Each is
called with the Execution and returns an Outcome. An application's middleware has another shape,
``(message, call_next) -> outcome``, and its result is checked (middleware.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution

Run = Callable[[Execution], Outcome]


class ChainLink(NamedTuple):
    """A built-in link and the name under which it is shown."""

    name: str
    around: Callable[[Run], Run]


def wrap(links: Sequence[ChainLink], run: Run) -> Run:
    """Put the links around ``run``, the first outermost; returns one callable."""
    for link in reversed(links):
        run = link.around(run)
    return run
