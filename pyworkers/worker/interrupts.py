"""Interrupts: the signal by which the master asks a worker to look at its page, and the requests in it.

Runs in the worker process. A request gives the job two seconds to clean up; then the master kills the worker.
This module decides nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from pyworkers.errors import Interrupted, JobCancelled
from pyworkers.ipc.page import ATTENTION

STOPS = "the server stops: the job is given back"


def cancelled() -> JobCancelled:
    """The exception that is raised in a cancelled job."""
    return JobCancelled("the job was cancelled")


def interrupted() -> Interrupted:
    """The exception that is raised in a job because the server stops."""
    return Interrupted(STOPS)


def listen(look: Callable[[], None]) -> None:
    """Call ``look`` for each signal of the master, in the main thread."""
    signal.signal(ATTENTION, lambda *_: look())
