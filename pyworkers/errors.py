"""The exceptions of pyworkers.

Imported by every process. Foreign exceptions (redis, OS, TOML) are translated into these at the edge, with
``from``. Nothing here does I/O.
"""

from __future__ import annotations

import sys
import sysconfig
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import ClassVar

_PACKAGE = str(Path(__file__).parent)
_LIBRARY = (sysconfig.get_path("stdlib"),)


class PyworkersError(Exception):
    """Base of all errors that pyworkers raises on purpose.

    ``exit_code`` is the exit code of a command that this error ends. ``hint`` is the fix, ``location`` the
    place of the error, ``code`` the error code that Redis answered, e.g. ``NOPERM``, or empty.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", location: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.code = code

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n{self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


def text_with_class(error: BaseException) -> str:
    """The text of an error after the name of its class, which says nothing about an error of pyworkers."""
    if isinstance(error, PyworkersError):
        return str(error)
    try:
        text = str(error)
    except Exception:  # of an application, whose exceptions may raise anything
        text = "(its text cannot be shown: __str__ failed)"
    return f"{type(error).__name__}: {text}"


class ConfigError(PyworkersError):
    """Invalid configuration: an unknown key, a wrong type, a missing application, a bad cron line."""

    exit_code = 2


class DeclarationError(ConfigError, TypeError):
    """Invalid use of a decorator of ``Worker``, e.g. two handlers for one queue.

    ``location`` is the line of the application that is wrong.
    """

    def __init__(self, message: str, *, hint: str = "", location: str = "", code: str = "") -> None:
        super().__init__(message, hint=hint, location=location or _line_of_application(), code=code)


def _line_of_application() -> str:
    """``FILE:LINE`` of the code that has called pyworkers; empty if it is not of an application."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(("<", *_LIBRARY)):
        return ""
    return place_of(frame.f_code.co_filename, frame.f_lineno)


def _is_ours(frame: FrameType) -> bool:
    """True for code of pyworkers, also for the code without a file that ``dataclass`` makes."""
    module = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename.startswith(_PACKAGE) or module.startswith("pyworkers.")


def place_of(file: str, line: int) -> str:
    """``FILE:LINE``, relative to the working directory if the file is in it."""
    with suppress(OSError, ValueError):
        file = str(Path(file).relative_to(Path.cwd()))
    return f"{file}:{line}"


class AppImportError(PyworkersError):
    """The application cannot be imported; ``traceback`` is its traceback as text."""

    exit_code = 3

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class RedisUnavailableError(PyworkersError):
    """Redis is unreachable, refused the login, or the connection was lost during the call."""

    exit_code = 4


class InterruptedDrainError(PyworkersError):
    """A signal has stopped ``pyworkers run --drain`` or ``--once`` before its end: jobs may be left."""

    exit_code = 5


class StoreError(PyworkersError):
    """Redis answered a call with an error, e.g. ``OOM`` or ``WRONGTYPE``; the message is from Redis."""


class EmbeddedError(PyworkersError):
    """The embedded server is not installed or did not start."""


class MissingExtraError(EmbeddedError):
    """The configuration needs an optional package (extra) that is not installed."""

    exit_code = 2


class BadArgumentError(PyworkersError, ValueError):
    """A job cannot be enqueued with these arguments; the message names the path of the invalid value.

    ``field`` is the parameter or the option that has it, e.g. ``args``; empty if it is not known.
    """

    def __init__(
        self, message: str, *, hint: str = "", location: str = "", code: str = "", field: str = ""
    ) -> None:
        super().__init__(message, hint=hint, location=location, code=code)
        self.field = field


class QueueFullError(PyworkersError):
    """The queue has ``limit`` jobs (``max_waiting``) or more; the job is not enqueued."""

    def __init__(self, queue: str, limit: int) -> None:
        super().__init__(f"the queue {queue!r} is full: max_waiting is {limit}")
        self.queue = queue
        self.limit = limit


class DuplicateJobError(PyworkersError):
    """A job with the same class, queue and arguments exists (``unique_for``): ``jid`` is its id."""

    def __init__(self, jid: str) -> None:
        super().__init__(f"the same job is enqueued already, with the id {jid}")
        self.jid = jid


class BatchError(PyworkersError):
    """A batch is unknown, or can no longer be used in this way."""


class BatchCancelledError(BatchError):
    """The batch is cancelled: it takes no more members."""


class BadResultError(PyworkersError, ValueError):
    """A tracked job returned a value that cannot be kept; the message names its path, or the limit."""


class JobFailedError(PyworkersError):
    """The job, batch, chain or group has ended without the requested result.

    ``jid`` is the id of the job, or of the first member that ended and is not done. ``state`` is its state:
    ``failed``, ``dead``, ``cancelled`` or ``expired``, of a member also ``dropped``, ``deleted`` or
    ``missing``; ``error_class`` and ``error`` are of its exception, and empty if there was none or if it is a
    member.
    """

    def __init__(
        self,
        jid: str,
        state: str,
        error_class: str = "",
        error: str = "",
        *,
        kind: str = "job",
        whole: str = "",
    ) -> None:
        reason = ": ".join(part for part in (error_class, error) if part)
        if whole:
            # The id of the batch; ``jid`` is the id of a member.
            super().__init__(f"the {kind} {whole} is dead: a member is {state}: {jid}")
        else:
            super().__init__(f"the {kind} {jid} is {state}" + (f": {reason}" if reason else ""))
        self.jid = jid
        self.state = state
        self.error_class = error_class
        self.error = error


class ResultTimeout(PyworkersError, TimeoutError):
    """The job whose result was requested has not ended in the time."""


class UntrackedJobError(PyworkersError):
    """The job whose result was requested is not tracked: it has no ``track``, has expired, or is unknown."""


class EncryptionKeyError(PyworkersError):
    """The arguments of a job cannot be encrypted or decrypted: their key is missing, or they were changed."""


class BadMessageError(PyworkersError):
    """Stored bytes are not a job: not JSON, not an object, too deep, too large, or wrongly typed."""


class UnknownJobError(PyworkersError):
    """No handler is registered for the job's queue and class."""


class JobTimeout(Exception):
    """Raised inside a job that exceeds its ``timeout``. Clean up and let it propagate."""


class JobCancelled(Exception):
    """Raised inside a cancelled job. Clean up and let it propagate: in two seconds the worker is killed."""


class Interrupted(BaseException):
    """Raised inside a running job when the server stops, two seconds before the server kills the worker.

    In a job with a checkpoint, ``save`` raises it at once, also if new code is ready. In a job of an ordered
    queue, and in a ``fenced`` one, it is also raised two seconds before their process ends because the server
    cannot renew its lease.

    The job is put back into its queue. Clean up and let the exception propagate: the job runs again, and this
    run does not count as an attempt. A BaseException, so that ``except Exception`` does not catch it.
    """


class WorkerLost(Exception):
    """The worker process died while it ran the job; the message says how, and names its peak memory.

    For ``on_error`` and ``on_exhausted``: no code raises it.
    """


class FateChosen(Exception):
    """Base of the exceptions that a job raises to choose what happens to it."""


class Discard(FateChosen):
    """Drop the job: it counts as failed, and is neither retried nor kept in ``dead``."""


class Kill(FateChosen):
    """Move the job to ``dead`` at once, even with retries left."""


class Retry(FateChosen):
    """Count a failure and run the job again after ``delay``.

    ``delay`` is in seconds, or a timedelta; None is Sidekiq's delay.
    """

    def __init__(self, message: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(message or "retry requested by the job")
        self.delay = delay


class Snooze(FateChosen):
    """Run the job again after ``delay``: not a failure, and not counted as an attempt.

    ``delay`` is in seconds, or a timedelta.
    """

    def __init__(self, delay: float | timedelta, message: str = "") -> None:
        delay_s = delay.total_seconds() if isinstance(delay, timedelta) else delay
        super().__init__(message or f"snoozed for {delay_s:g} s")
        self.delay = delay
