"""Carrying: the values of structlog's context that travel in the envelope of a job.

Pure; used by the clients, the worker processes and the master. Not called where no names are configured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FIELD = "log_context"
"""The field of the envelope: an object with a value for each name."""
MAX_CHARACTERS = 1000
"""The limit of a text; a longer one is cut."""
# The fields of pyworkers' own lines, which a job must not overwrite, and a parameter of structlog's methods.
_OWN = {
    "timestamp", "level", "event", "identity", "pid", "logger", "jid", "job_class", "queue", "attempt",
    "outcome", "duration_ms", "error_class", "error", "crash_count", "exception", "exc_info", "stack",
    "retry_at", "self",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# Numbers beyond it lose digits in other languages.
_LARGEST = 1 << 53

Carried = dict[str, str | int | float | bool]


def check_names(names: Iterable[object]) -> None:
    """Raise ValueError for a name that cannot be carried."""
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"holds {name!r}, which is not the name of a context variable")
        if name in _OWN:
            raise ValueError(f"holds {name!r}, which is a field of pyworkers' own log lines")


def to_carry(context: Mapping[str, object], names: Iterable[str]) -> Carried:
    """The values of a context under these names, as JSON values; unset ones, and None, are left out."""
    return {name: _written(context[name]) for name in names if context.get(name) is not None}


def carried(data: Mapping[str, object], names: Iterable[str]) -> Carried:
    """The values in an envelope under these names. A value that is no text, number or boolean is ignored."""
    found = data.get(FIELD)
    if not isinstance(found, dict):
        return {}
    values = {name: found.get(name) for name in names}
    return {name: _cut(value) for name, value in values.items() if isinstance(value, str | int | float)}


def _written(value: object) -> str | int | float | bool:
    if isinstance(value, bool) or (isinstance(value, int | float) and -_LARGEST < value < _LARGEST):
        return value
    try:
        # A UUID, an enum, a date: the text that a log line shows. Lone surrogates become question marks.
        return str(value).encode(errors="replace").decode()[:MAX_CHARACTERS]
    except Exception:
        # A job must not fail to be enqueued because of its log lines.
        return f"<unprintable {type(value).__name__}>"


def _cut(value: str | int | float) -> str | int | float:
    return value[:MAX_CHARACTERS] if isinstance(value, str) else value
