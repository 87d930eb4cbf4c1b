"""pyworkers: a worker server for Python that speaks Sidekiq's Redis protocol and loses nothing.

The public names. They are loaded at first use, so that ``pyworkers --help`` and the master need not import
the modules that only applications use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    from pyworkers.plugins.canvas import chain, group
    from pyworkers.plugins.checkpoints import Checkpoint, checkpoint
    from pyworkers.protocol.call import RESULT, RESULTS
    from pyworkers.protocol.flow.history import JobHistory, JobRun
    from pyworkers.protocol.message import Message, current_message
    from pyworkers.protocol.outcome import Outcome
    from pyworkers.protocol.status import JobState, JobStatus, Progress
    from pyworkers.serving import serve
    from pyworkers.store.cancel import Cancelled

_HOMES = {
    "Worker": "app",
    "Job": "app",
    "Client": "client",
    "AsyncClient": "asyncclient",
    "Message": "protocol.message",
    "current_message": "protocol.message",
    "chain": "plugins.canvas",
    "group": "plugins.canvas",
    "RESULT": "protocol.call",
    "RESULTS": "protocol.call",
    "CallNext": "middleware",
    "DualLink": "middleware",
    "Middleware": "middleware",
    "Outcome": "protocol.outcome",
    "PyworkersError": "errors",
    "BadArgumentError": "errors",
    "EncryptionKeyError": "errors",
    "RedisUnavailableError": "errors",
    "DuplicateJobError": "errors",
    "QueueFullError": "errors",
    "Discard": "errors",
    "Kill": "errors",
    "Retry": "errors",
    "Snooze": "errors",
    "JobTimeout": "errors",
    "BadResultError": "errors",
    "JobFailedError": "errors",
    "ResultTimeout": "errors",
    "UntrackedJobError": "errors",
    "JobHistory": "protocol.flow.history",
    "JobRun": "protocol.flow.history",
    "JobState": "protocol.status",
    "JobStatus": "protocol.status",
    "Progress": "protocol.status",
    "Checkpoint": "plugins.checkpoints",
    "checkpoint": "plugins.checkpoints",
    "JobCancelled": "errors",
    "Interrupted": "errors",
    "WorkerLost": "errors",
    "Cancelled": "store.cancel",
    "serve": "serving",
}

__all__ = [
    "RESULT",
    "RESULTS",
    "AsyncClient",
    "BadArgumentError",
    "BadResultError",
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
    "serve",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
