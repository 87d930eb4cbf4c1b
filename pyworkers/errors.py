"""The exceptions of pyworkers: one small tree.

Read by every process. Foreign exceptions (redis, OS, TOML) are translated into these at the edge, with
``from``. Nothing here does I/O.
"""

from __future__ import annotations

from typing import ClassVar


class PyworkersError(Exception):
    """Base of all errors that pyworkers raises on purpose.

    ``exit_code`` is what ``pyworkers run`` ends with when nobody handles the error.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", location: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.code = ""
        """Why Redis did not do it: a code of ``replies``; empty if that is not the reason."""

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        hint = f"\n{self.hint}" if self.hint else ""
        return f"{where}{self.message}{hint}"


class ConfigError(PyworkersError):
    """The configuration is wrong: an unknown key, a wrong type, a missing application, a bad cron line."""

    exit_code = 2


class DeclarationError(ConfigError, TypeError):
    """A decorator of ``Worker`` was used in a way that cannot work, e.g. two handlers for one queue."""


class AppImportError(PyworkersError):
    """The application could not be imported; ``traceback`` is the text to show."""

    exit_code = 3

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class RedisUnavailableError(PyworkersError):
    """Redis could not be reached, refused the login, or went away during the call."""

    exit_code = 4


class StoreError(PyworkersError):
    """Redis answered a call with an error, e.g. ``OOM`` or ``WRONGTYPE``; the message is Redis' own."""


class EmbeddedError(PyworkersError):
    """The embedded server is not installed or did not start."""


class MissingExtraError(EmbeddedError):
    """The configuration names what only an extra brings, which is not installed."""

    exit_code = 2


class BadArgumentError(PyworkersError, ValueError):
    """A job cannot be enqueued with these arguments; the message holds the path of the bad value."""


class BadMessageError(PyworkersError):
    """Stored bytes are not a job: not JSON, not an object, too deep, too large, or wrongly typed."""


class UnknownJobError(PyworkersError):
    """No handler is registered for the job's queue and class."""


class JobTimeout(Exception):
    """Raised inside a job that runs longer than its time limit. Clean up and let it pass."""


class JobCancelled(Exception):
    """Raised inside a job that somebody has cancelled. Clean up and let it pass: two seconds remain."""


class Interrupted(BaseException):
    """Raised inside a job two seconds before its server, which stops, kills it and gives it back.

    Clean up and let it pass: the job runs again, and this is no attempt. Not an Exception, so that
    ``except Exception`` lets it pass.
    """


class WorkerLost(Exception):
    """The worker process died while it ran the job."""


class FateChosen(Exception):
    """Base of the exceptions that a job raises to choose what happens to it."""


class Discard(FateChosen):
    """Drop the job: counted as failed, neither retried nor kept in ``dead``."""


class Kill(FateChosen):
    """Move the job to ``dead`` at once, whatever retries it has left."""


class Retry(FateChosen):
    """Count a failure and run the job again after ``delay`` seconds (Sidekiq's delay if None)."""

    def __init__(self, message: str = "", *, delay: float | None = None) -> None:
        super().__init__(message or "retry requested by the job")
        self.delay = delay


class Snooze(FateChosen):
    """Run the job again after ``delay`` seconds. Not a failure, and not counted as an attempt."""

    def __init__(self, delay: float, message: str = "") -> None:
        super().__init__(message or f"snoozed for {delay:g} s")
        self.delay = delay
