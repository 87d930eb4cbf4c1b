"""The logging step: writes one line per job, with its fate and its duration.

Runs in the worker process, as the last step. The error of a failed job is in the Execution. Arguments are
never logged.
"""

from __future__ import annotations

from pyworkers import logs
from pyworkers.errors import Discard, FateChosen, Interrupted, JobTimeout
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE, misfit_number
from pyworkers.worker.execution import ExcInfo, Execution

# A module constant: Python 3.11 takes longer to read a member of an enum than to compare it.
_DONE = Fate.DONE

log = logs.get_logger()


def log_end(execution: Execution, outcome: Outcome) -> Outcome:
    """Write the line of a job that has ended. The outcome stays."""
    # In whole microseconds; round(…, 3) would take a microsecond itself.
    duration_ms = int(execution.elapsed_s * 1e6) / 1000
    if outcome.fate is _DONE:
        log.info("job.done", duration_ms=duration_ms)
    else:
        _log(execution.message, outcome, execution.exc_info, duration_ms)
    return outcome


def log_end_in_links(execution: Execution, outcome: Outcome) -> Outcome:
    """``log_end`` for a handler with links: a job is skipped that is done, but was not called by a link."""
    if outcome.fate is not _DONE or execution.has_run:
        return log_end(execution, outcome)
    log.info("job.skipped", hint="a middleware has not called call_next")
    return outcome


def _log(message: Message, outcome: Outcome, error: ExcInfo | None, duration_ms: float) -> None:
    fate = outcome.fate.name.lower()
    if outcome.misfit and not outcome.failed:
        log.warning(
            "job.misfit",
            misfits=misfit_number(message),
            error_class=outcome.error_class,
            error=outcome.error_message[:MAX_ERROR_MESSAGE],
            retry_at=outcome.at,
            hint="this server's code does not fit it: it is put back into its queue for another server",
        )
    elif error and isinstance(error[1], Discard):
        log.info("job.discarded", reason=outcome.error_message[:MAX_ERROR_MESSAGE], duration_ms=duration_ms)
    elif error and isinstance(error[1], Interrupted):
        reason = str(error[1])[:MAX_ERROR_MESSAGE]
        log.warning("job.interrupted", **({"reason": reason} if reason else {}), duration_ms=duration_ms)
    elif outcome.failed:
        _log_failure(outcome, error, {"outcome": fate, "duration_ms": duration_ms})
    elif outcome.fate is Fate.SNOOZE:
        log.info("job.snoozed", until=outcome.at, duration_ms=duration_ms)
    elif outcome.fate is Fate.EXPIRED:
        log.info("job.expired")
    elif outcome.fate is Fate.CANCELLED:
        log.info("job.cancelled", duration_ms=duration_ms)
    else:
        # The job did not fail: a middleware returned this fate.
        log.info("job.done", outcome=fate, duration_ms=duration_ms)


def _log_failure(outcome: Outcome, error: ExcInfo | None, fields: dict[str, object]) -> None:
    fields |= {"error_class": outcome.error_class, "error": outcome.error_message[:MAX_ERROR_MESSAGE]}
    if outcome.fate is Fate.RETRY:
        fields["retry_at"] = outcome.at
    if error and not isinstance(error[1], FateChosen):
        fields["exc_info"] = error
    write = log.warning if outcome.fate is Fate.RETRY else log.error
    write("job.timeout" if error and isinstance(error[1], JobTimeout) else "job.failed", **fields)
