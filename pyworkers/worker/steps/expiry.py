"""The expiry: drops a job that has not started by the time in its field ``expiry``.

Runs in the worker process, before the retry link, and only for a job with that field. The time is compared
with Redis' clock. A job that has started once does not expire at its retries.
"""

from __future__ import annotations

from pyworkers.protocol import timestamps
from pyworkers.protocol.message import Message
from pyworkers.protocol.retry import first_failure
from pyworkers.protocol.suspects import MARK

_STARTED = frozenset(("retry_count", "crash_count", "failed_at"))


def has_expired(message: Message, now: float) -> bool:
    """True if the job may not start any more. ``now`` is in epoch seconds.

    An ``expiry`` that is no positive number is ignored. A job that a dead server had may have started there.
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
