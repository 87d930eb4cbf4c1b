"""pyworkers: a worker server for Python that speaks Sidekiq's Redis protocol and loses nothing.

The public names. They are loaded at first use, so that ``pyworkers --help`` and the master need not import
the modules that only applications use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyworkers.lazy import getter
from pyworkers.version import __version__

if TYPE_CHECKING:
    from pyworkers.app import Job, Worker
    from pyworkers.asyncclient import AsyncClient
    from pyworkers.client import Client
    from pyworkers.errors import (
        BadArgumentError,
        BadResultError,
        Discard,
        DuplicateJobError,
        EncryptionKeyError,
        Interrupted,
        JobCancelled,
        JobFailedError,
        JobTimeout,
        Kill,
        PyworkersError,
        QueueFullError,
        RedisUnavailableError,
        ResultTimeout,
        Retry,
        Snooze,
        UntrackedJobError,
        WorkerLost,
    )
    from pyworkers.middleware import CallNext, DualLink, Middleware
    from pyworkers.plugins.batches import Batch
    from pyworkers.plugins.canvas import chain, group, parallel
    from pyworkers.plugins.checkpoints import Checkpoint, checkpoint
    from pyworkers.protocol.call import RESULT, RESULTS, Call
    from pyworkers.protocol.flow.history import JobHistory, JobRun
    from pyworkers.protocol.flow.joblog import LogLine
    from pyworkers.protocol.limits import Limit
    from pyworkers.protocol.message import Message, current_message
    from pyworkers.protocol.outcome import Outcome
    from pyworkers.protocol.status import Cancelled, JobState, JobStatus, Progress
    from pyworkers.serving import serve

__all__ = [
    "RESULT",
    "RESULTS",
    "AsyncClient",
    "BadArgumentError",
    "BadResultError",
    "Batch",
    "Call",
    "CallNext",
    "Cancelled",
    "Checkpoint",
    "Client",
    "Discard",
    "DualLink",
    "DuplicateJobError",
    "EncryptionKeyError",
    "Interrupted",
    "Job",
    "JobCancelled",
    "JobFailedError",
    "JobHistory",
    "JobRun",
    "JobState",
    "JobStatus",
    "JobTimeout",
    "Kill",
    "Limit",
    "LogLine",
    "Message",
    "Middleware",
    "Outcome",
    "Progress",
    "PyworkersError",
    "QueueFullError",
    "RedisUnavailableError",
    "ResultTimeout",
    "Retry",
    "Snooze",
    "UntrackedJobError",
    "Worker",
    "WorkerLost",
    "__version__",
    "chain",
    "checkpoint",
    "current_message",
    "group",
    "parallel",
    "serve",
]


if not TYPE_CHECKING:  # With it, a type checker would take any name.
    __getattr__ = getter(
        __name__,
        {
            "pyworkers.app": ("Job", "Worker"),
            "pyworkers.asyncclient": ("AsyncClient",),
            "pyworkers.client": ("Client",),
            "pyworkers.errors": (
                "BadArgumentError",
                "BadResultError",
                "Discard",
                "DuplicateJobError",
                "EncryptionKeyError",
                "Interrupted",
                "JobCancelled",
                "JobFailedError",
                "JobTimeout",
                "Kill",
                "PyworkersError",
                "QueueFullError",
                "RedisUnavailableError",
                "ResultTimeout",
                "Retry",
                "Snooze",
                "UntrackedJobError",
                "WorkerLost",
            ),
            "pyworkers.middleware": ("CallNext", "DualLink", "Middleware"),
            "pyworkers.plugins.batches": ("Batch",),
            "pyworkers.plugins.canvas": ("chain", "group", "parallel"),
            "pyworkers.plugins.checkpoints": ("Checkpoint", "checkpoint"),
            "pyworkers.protocol.call": ("RESULT", "RESULTS", "Call"),
            "pyworkers.protocol.flow.history": ("JobHistory", "JobRun"),
            "pyworkers.protocol.flow.joblog": ("LogLine",),
            "pyworkers.protocol.limits": ("Limit",),
            "pyworkers.protocol.message": ("Message", "current_message"),
            "pyworkers.protocol.outcome": ("Outcome",),
            "pyworkers.protocol.status": ("Cancelled", "JobState", "JobStatus", "Progress"),
            "pyworkers.serving": ("serve",),
        },
    )


def __dir__() -> list[str]:
    return __all__
