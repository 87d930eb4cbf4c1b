"""The logging link: one line per job, with what it needs to be found again.

Runs in the worker process, as the outermost link. It sees outcomes only: the retry link below it leaves the
error of a failed job in ``LastError``. Arguments are never logged.
"""

from __future__ import annotations

from types import TracebackType

from pyworkers import logs
from pyworkers.errors import Discard, FateChosen, Interrupted, JobTimeout
from pyworkers.middleware import CallNext
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE
from pyworkers.worker.links.stats import Stats

log = logs.get_logger()


ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class LastError:
    """Hands the error of a failed job from the retry link to the logging link."""

    def __init__(self) -> None:
        self._error: ExcInfo | None = None

    def put(self, error: BaseException, trace: TracebackType | None) -> None:
        """Keep the error; ``trace`` is the part of its traceback that is worth reading."""
        self._error = (type(error), error, trace)

    def take(self) -> ExcInfo | None:
        """The error, if there was one since the last call; its frames are not kept alive any longer."""
        error, self._error = self._error, None
        return error


def logged(call_next: CallNext, last_error: LastError, stats: Stats) -> CallNext:
    """The link; ``stats`` knows how long the job took."""

    def logging(message: Message) -> Outcome:
        log.debug("job.start")
        outcome = call_next(message)
        # In whole microseconds; round(…, 3) would take one itself.
        duration_ms = int(stats.elapsed_s * 1e6) / 1000
        if outcome.fate is Fate.DONE:
            log.info("job.done", duration_ms=duration_ms)
        else:
            _log(outcome, last_error.take(), duration_ms)
        return outcome

    return logging


def _log(outcome: Outcome, error: ExcInfo | None, duration_ms: float) -> None:
    fate = outcome.fate.name.lower()
    if error and isinstance(error[1], Discard):
        log.info("job.discarded", reason=outcome.error_message[:MAX_ERROR_MESSAGE], duration_ms=duration_ms)
    elif error and isinstance(error[1], Interrupted):
        log.warning("job.interrupted", duration_ms=duration_ms)
    elif outcome.failed:
        _log_failure(outcome, error, {"outcome": fate, "duration_ms": duration_ms})
    elif outcome.fate is Fate.SNOOZE:
        log.info("job.snoozed", until=outcome.at, duration_ms=duration_ms)
    elif outcome.fate is Fate.CANCELLED:
        log.info("job.cancelled", duration_ms=duration_ms)
    else:
        # A link has chosen: the job did not fail, and yet goes elsewhere.
        log.info("job.done", outcome=fate, duration_ms=duration_ms)


def _log_failure(outcome: Outcome, error: ExcInfo | None, fields: dict[str, object]) -> None:
    fields |= {"error_class": outcome.error_class, "error": outcome.error_message[:MAX_ERROR_MESSAGE]}
    if outcome.fate is Fate.RETRY:
        fields["retry_at"] = outcome.at
    if error and not isinstance(error[1], FateChosen):
        fields["exc_info"] = error
    write = log.warning if outcome.fate is Fate.RETRY else log.error
    write("job.timeout" if error and isinstance(error[1], JobTimeout) else "job.failed", **fields)
