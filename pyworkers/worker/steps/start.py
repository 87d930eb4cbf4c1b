"""The steps before a job: its context, the values that it carries, its expiry, its start, its arguments.

Run in the worker process, in the context of the job. A step returns None, or the outcome of a job that it
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers import logs
from pyworkers.encryption import Encryption
from pyworkers.errors import Kill
from pyworkers.protocol import timestamps
from pyworkers.protocol.flow.carrying import carried
from pyworkers.protocol.message import Message, set_run
from pyworkers.protocol.outcome import EXPIRED, Outcome
from pyworkers.protocol.retry import first_failure
from pyworkers.protocol.sealing import FIELD
from pyworkers.protocol.suspects import MARK
from pyworkers.worker.execution import Execution

Before = Callable[[Execution], Outcome | None]

_STARTED = frozenset(("retry_count", "crash_count", "failed_at"))
_ENTERPRISE = (
    "the last argument is encrypted by Sidekiq Enterprise (`encrypt`), which pyworkers cannot open: "
    "run this class in Ruby, or enqueue it without `encrypt`"
)
log = logs.get_logger()


def enter(execution: Execution) -> None:
    """Have ``current_message`` return the message of this run, and log lines name its job."""
    set_run(execution)


def carrying(names: Sequence[str]) -> Before:
    """Binds the values that a job carries under these names to structlog's context.

    The line of the end has the values, and so have the jobs that the job enqueues.
    """
    return lambda execution: bind(names, execution.message)


def bind(names: Sequence[str], message: Message) -> None:
    """Bind what a job carries, in this context."""
    if names and (values := carried(message.data, names)):
        logs.bind(values)


def naming(redis_of: Callable[[str], str]) -> Before:
    """Has the log lines of a job name the Redis of its queue, if there are several."""
    return lambda execution: logs.bind({"redis": redis_of(execution.message.queue)})


def expiry(redis_clock: Callable[[], float]) -> Before:
    """Ends a job that has not started by the time in its field ``expiry``, by Redis' clock."""

    def end_if_expired(execution: Execution) -> Outcome | None:
        message = execution.message
        return EXPIRED if "expiry" in message.data and has_expired(message, redis_clock()) else None

    return end_if_expired


def has_expired(message: Message, now: float) -> bool:
    """True if the job may not start any more. ``now`` is in epoch seconds.

    An ``expiry`` that is no positive number is ignored. A job that has started once does not expire at its
    retries, and one that a dead server had may have started there.
    """
    stored = message.data.get("expiry")
    if isinstance(stored, str):
        return False
    expiry = timestamps.read(stored)
    if expiry is None or not 0 < expiry <= now:
        return False
    return not _has_started(message) and not message.raw.endswith(MARK)


def _has_started(message: Message) -> bool:
    marks = _STARTED & message.data.keys()
    # A job that did not fit its server has the time of that in ``failed_at``, and has not started.
    return bool(marks) and (marks != {"failed_at"} or first_failure(message.data.get) is not None)


def starting(stopwatch: Callable[[], float]) -> Before:
    """Begins the run: from now on, requests to end are delivered to it."""

    def start(execution: Execution) -> None:
        log.debug("job.start")
        execution.begin(stopwatch())

    return start


def decryption(encryption: Encryption) -> Before:
    """Opens encrypted arguments. After the start: a job that cannot be opened fails like any other."""

    def open_arguments(execution: Execution) -> None:
        data = execution.message.data
        if data.get(FIELD) is True:
            execution.replace_message(encryption.opened(execution.message))
        elif data.get("encrypt"):
            raise Kill(_ENTERPRISE)

    return open_arguments
