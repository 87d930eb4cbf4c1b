"""Unique: the lock of a job of which no second one may be enqueued, and its release.

Pure. The producer makes the key; it travels in the envelope as ``unique_key``, so that every process that
ends the job knows it. The lock holds the jid; a job whose lock was lost or taken over releases nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.effects import Unlock
from pyworkers.protocol.envelope import check_value
from pyworkers.protocol.flow.canonical import canonical
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.text import is_unicode

FIELD = "unique_key"
PREFIX = "unique:"
"""Of the names of all locks."""
BY_TIME = "|expiry"
"""The end of a key whose lock ends by time alone."""
# A longer name of a class or queue, or one with the separator, is cut, and ends with a hash of it.
_SHOWN, _CUT, _NAME_DIGITS, _DIGITS = 64, 47, 16, 32
LONGEST = 256


def digest(text: bytes) -> bytes:
    """The digest of arguments that are no secret."""
    return hashlib.sha256(text).digest()


def key_of(
    job_class: str,
    queue: str,
    args: Sequence[Any],
    by: Any,
    path: str,
    digest: Callable[[bytes], bytes] = digest,
) -> str:
    """The key: class, queue, and a digest of the canonical arguments, or of what ``by`` makes of them.

    ``by`` is a function of the arguments, or its result. ``path`` names ``args`` in the BadArgumentError for
    a value that JSON does not carry. Other languages compute the same key.
    """
    return "|".join((*map(_shown, (job_class, queue)), _digits(args, by, path, digest)))


def _digits(args: Sequence[Any], by: Any, path: str, digest: Callable[[bytes], bytes]) -> str:
    """The digest of what counts as the same."""
    subject = by(*args) if callable(by) else by
    if subject is None:
        subject = args
    else:
        path = "unique_by"
    try:
        text = canonical(subject)
    except (TypeError, ValueError, RecursionError) as error:
        check_value(subject, path)
        raise BadArgumentError(f"{path} cannot be written as JSON: {error}") from error
    return digest(text).hex()[:_DIGITS]


def rekeyed(
    key: str, old: Sequence[Any], args: Sequence[Any], by: Any, digest: Callable[[bytes], bytes]
) -> str:
    """The key of a stored job for other arguments: its class and its queue stay.

    Without ``by`` all ``old`` arguments must have made the key. Raises BadArgumentError if they did not.
    """
    end = BY_TIME if key.endswith(BY_TIME) else ""
    job_class, queue, found = parts_of(key)
    if not job_class or (by is None and found != _digits(old, None, "args", digest)):
        raise BadArgumentError(
            "the lock of this job is not made of all its arguments, or with another key",
            hint="pass unique_by, as at the enqueue"
            if job_class
            else "enqueue another job, and delete this one",
            field="unique_by",
        )
    return "|".join((job_class, queue, _digits(args, by, "args", digest))) + end


def lock_of(key: str) -> str:
    """The name of the lock, as effects name keys."""
    return f"{PREFIX}{key}"


def parts_of(key: str) -> tuple[str, str, str]:
    """Class, queue and digest of a key, the first two perhaps shortened; empty for a foreign key."""
    parts = key.removesuffix(BY_TIME).split("|")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else ("", "", key)


def effects(ended: Ended) -> Iterable[Unlock]:
    """The release of the lock: at the end for ``success``; ``expiry`` leaves it to the lock's TTL."""
    until = ended.data.get("unique_until")
    if until == "expiry":
        return ()
    if ended.ending.final or (until == "start" and ended.ending is Ending.RETRY):
        return _release(ended.data, ended.jid)
    return ()


def effects_at_start(data: Mapping[str, Any], jid: str) -> tuple[Unlock, ...]:
    """The release of the lock when the job starts, for ``start``."""
    return _release(data, jid) if data.get("unique_until") == "start" else ()


def _release(data: Mapping[str, Any], jid: str) -> tuple[Unlock, ...]:
    key = data.get(FIELD)
    # Other languages may write anything; their lock then ends with its TTL.
    if is_key(key) and is_unicode(jid):
        return (Unlock(lock_of(key), jid),)
    return ()


def _shown(name: str) -> str:
    if len(name) <= _SHOWN and "|" not in name:
        return name
    hashed = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()
    return f"{name[:_CUT].replace('|', '_')}…{hashed[:_NAME_DIGITS]}"


def is_key(value: Any) -> TypeGuard[str]:
    """True if a value of the envelope can be the key of a lock."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST and is_unicode(value)
