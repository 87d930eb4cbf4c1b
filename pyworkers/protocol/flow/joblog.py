"""Joblog: the lines of a job's log, and how Redis holds them: the STREAM ``log:JID``.

Pure; a worker process imports it with the first line that a job writes. The effects ``AppendLog`` and
``EndLog`` write the stream, whose oldest lines are removed beyond 64 KB. Each run ends with a line that has
the state of the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import simplejson

from pyworkers.errors import JobCancelled, JobTimeout
from pyworkers.protocol import timestamps
from pyworkers.protocol.effects import EndLog
from pyworkers.protocol.flow.ending import Ended
from pyworkers.protocol.flow.track import ALIVE_S, is_tracked, kept_s
from pyworkers.text import shorten, valid

UNTRACKED_S = 86_400
"""How long the log of a job without ``track`` is kept after its last line."""
# A line: the longest text, and the longest value and name of a field, in characters.
_MAX_TEXT, _MAX_VALUE, _MAX_NAME = 2000, 300, 100
_MAX_FIELDS = 20
# Of a value with megabytes, the members that are read, and how deep.
_MAX_MEMBERS, _MAX_DEPTH = 20, 2
_DEEPEST = 50
# Bytes of a line as JSON: beyond, it is written without fields. So at least eight lines stay.
_MAX_LINE = 8000
_MAX_ERROR = 300
# They ask the job to end, and may come at any moment.
_REQUESTS = (JobTimeout, JobCancelled)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a job's log. ``at`` is in epoch seconds, by the clock of the worker."""

    text: str
    at: float | None = None
    level: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    state: str = ""
    """The state of the job after a run; empty for a line that the job has written."""

    def as_dict(self) -> dict[str, Any]:
        """The line as JSON values."""
        return asdict(self)


def log_key(jid: str) -> str:
    """The STREAM with the lines, as effects name keys."""
    return f"log:{jid}"


def alive_s(data: Mapping[str, Any], jid: str) -> int:
    """How long the log of a running job is kept after its last line."""
    return ALIVE_S if is_tracked(data, jid) else UNTRACKED_S


def encoded(at: float, level: str, text: str, fields: Mapping[str, Any]) -> bytes:
    """A line that a job writes, as JSON. Of one that is too long, both ends are kept, and its length."""
    if len(text) <= _MAX_TEXT and _room(fields, _MAX_TEXT) >= 0:
        line = _encoded(
            {"at": at, "level": level, "text": text} | ({"fields": dict(fields)} if fields else {})
        )
        if len(line) <= _MAX_TEXT:
            return line
    some = {str(name)[:_MAX_NAME]: _short(fields[name]) for name in list(fields)[:_MAX_FIELDS]}
    line = _encoded({"at": at, "level": level, "text": shorten(text, _MAX_TEXT), "fields": some})
    if len(line) <= _MAX_LINE:
        return line
    return _encoded({"at": at, "level": level, "text": shorten(text, _MAX_TEXT // 4)})


def _short(value: Any) -> Any:
    if not isinstance(value, str) and _room(value, _MAX_TEXT) < 0:
        return f"{str(_safe(_beginning(value)))[:_MAX_VALUE]}…"
    text = value if isinstance(value, str) else str(_safe(value))
    return value if len(text) <= _MAX_VALUE else shorten(text, _MAX_VALUE)


def _room(value: Any, room: int, depth: int = _DEEPEST) -> int:
    """What is left of ``room`` characters after a value at least; negative once it is too long.

    It stops there, and at a depth: the value may have megabytes, or contain itself.
    """
    if isinstance(value, str | bytes | bytearray):
        return room - len(value)
    if isinstance(value, Mapping):
        members: Any = (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple | set | frozenset):
        members = value
    else:
        return room - 1
    if not depth:
        return room
    room -= 1
    for member in members:
        if room < 0:
            break
        room = _room(member, room, depth - 1)
    return room


def _beginning(value: Any, depth: int = _MAX_DEPTH) -> Any:
    if isinstance(value, str | bytes | bytearray):
        return value[:_MAX_VALUE]
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    if not depth:
        return "…"
    if isinstance(value, Mapping):
        some = islice(value.items(), _MAX_MEMBERS)
        return {str(name)[:_MAX_NAME]: _beginning(part, depth - 1) for name, part in some}
    return [_beginning(part, depth - 1) for part in islice(value, _MAX_MEMBERS)]


def _encoded(value: Mapping[str, Any]) -> bytes:
    try:
        text = _encode(value)
    except _REQUESTS:
        raise
    except Exception:  # a key that is not a string, a circular value, a broken __str__ …
        text = _encode({str(name): _safe(part) for name, part in value.items()})
    return valid(text).encode()


def _safe(value: Any) -> Any:
    try:
        _encode(value)
    except _REQUESTS:
        raise
    except Exception:
        try:
            return str(value)
        except _REQUESTS:
            raise
        except Exception:
            return f"<unprintable {type(value).__name__}>"
    return value


_encode = json.JSONEncoder(default=str, ensure_ascii=False, separators=(",", ":")).encode


def ended(end: Ended) -> EndLog:
    """The last line of a run. Nothing is written for a job without a log."""
    error = f"{end.error_class}: {end.error_message}" if end.error_class else end.error_message
    line = {"at": end.now, "state": end.ending.state.value, "text": shorten(error, _MAX_ERROR)}
    keep_s = kept_s(end) if is_tracked(end.data, end.jid) else UNTRACKED_S
    return EndLog(log_key(end.jid), _encoded(line), keep_s)


def read_line(packed: bytes) -> LogLine:
    """A line as Redis holds it; one that is not valid is shown as its text."""
    try:
        found = simplejson.loads(packed.decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return LogLine(packed.decode(errors="backslashreplace"))
    at, fields = found.get("at"), found.get("fields")
    texts = [value if isinstance(value, str) else "" for value in map(found.get, ("text", "level", "state"))]
    moment = timestamps.read(at) if isinstance(at, int | float) else None
    return LogLine(texts[0], moment, texts[1], fields if isinstance(fields, dict) else {}, texts[2])
