"""Lines: makes one line of an event, JSON or for a terminal.

Used by ``logs``; it writes nothing. A text beyond a limit loses its middle, and for a terminal an unprintable
character is escaped.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from pyworkers.logs.tracebacks import Colored, colored, plain
from pyworkers.observing.readable import qualname_of
from pyworkers.observing.requests import is_request
from pyworkers.protocol.message import job_fields
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE
from pyworkers.text import printable, shorten

# Characters of a value that may be longer than an error message: a traceback, a list.
_MAX_LONG = 5 * MAX_ERROR_MESSAGE
_BLOCKS = ("exception", "stack")
_LONG = (*_BLOCKS, "traceback")
# The fields that structlog's renderer writes without quotes.
_BARE = ("timestamp", "level", "event", "logger", "logger_name")
_INDENT = "    "


def processors_of(constant: Mapping[str, object], console: bool, colors: bool) -> list[Processor]:
    """The steps from an event to a line; the ``constant`` fields go into every JSON line."""
    timestamp = _Timestamp().now

    def head(_: object, method: str, fields: EventDict) -> EventDict:
        first = {"timestamp": timestamp(), "level": method, "event": fields.get("event")}
        # A console shows one server, so its identity is left out.
        whence = {} if console else {**constant, "pid": os.getpid()}
        return {**first, **whence, **job_fields(), **fields, **first}

    colors = colors and not os.environ.get("NO_COLOR")
    exceptions = structlog.processors.ExceptionRenderer(colored if console and colors else plain)
    if not console:
        return [_safe([structlog.contextvars.merge_contextvars, head, exceptions, _json])]
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors,
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(logger: Any, method: str, fields: EventDict) -> str:
        try:
            return renderer(logger, method, _for_terminal(fields))
        except Exception:  # a value with a broken __repr__
            return _json(logger, method, fields)

    return [_safe([structlog.contextvars.merge_contextvars, head, exceptions, render])]


def _safe(steps: Sequence[Processor]) -> Processor:
    """The steps as one, which raises nothing of what a value raises: then the line has the event alone."""

    def line(logger: Any, method: str, fields: EventDict) -> Any:
        made: Any = fields
        event = fields.get("event")
        try:
            for step in steps:
                made = step(logger, method, made)
            return made
        except BaseException as error:
            if is_request(error):
                raise
            about = {"level": method, "event": safe_repr(event), "log_error": qualname_of(type(error))}
            return _encode(about)

    return line


class _Timestamp:
    """The time as text, whose part above the second is made once in a second."""

    def __init__(self) -> None:
        self._latest = 0, ""

    def now(self) -> str:
        micros = time.time_ns() // 1000
        second = micros // 1_000_000
        # Read once, because another thread may be in the next second.
        latest, text = self._latest
        if second != latest:
            text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            self._latest = second, text
        return f"{text}.{micros % 1_000_000:06d}Z"


def _limit(name: str, value: object) -> int:
    return MAX_ERROR_MESSAGE if isinstance(value, str) and name not in _LONG else _MAX_LONG


class _Verbatim:
    """A text that structlog's renderer writes as it is, as it does with the repr of any object."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _for_terminal(fields: EventDict) -> EventDict:
    """The fields with escapes, so that none controls the terminal or imitates a line of the log."""
    if (traceback := fields.pop("traceback", None)) and "exception" not in fields:
        # The traceback of another process, as text.
        fields["exception"] = traceback
    if isinstance(about := fields.get("about"), Mapping):
        fields["stack"] = "\n".join(f"{name:<12} {value}" for name, value in about.items())
        del fields["about"]
    return {printable(name): _shown(name, value) for name, value in fields.items()}


def _shown(name: str, value: object) -> object:
    if isinstance(value, Colored):
        return "\n".join(f"{_INDENT}{line}" for line in value.split("\n"))
    text = shorten(value if isinstance(value, str) else repr(value), _limit(name, value))
    if name in _BLOCKS:
        # Indented: a line of the log begins in the first column, a line of a message never does.
        return "\n".join(f"{_INDENT}{printable(line.expandtabs())}" for line in text.split("\n"))
    if name in _BARE:
        return printable(text)
    if isinstance(value, str):
        return text if text.isprintable() else _Verbatim(repr(text))
    return _Verbatim(printable(text))


def _json(_: object, __: str, fields: MutableMapping[str, Any]) -> str:
    line = _line(fields)
    # The length of the line is known; the length of each field would take time for every job.
    if len(line) <= MAX_ERROR_MESSAGE:
        return line
    return _line({name: _shortened(name, value) for name, value in fields.items()})


def _shortened(name: str, value: object) -> object:
    text = value if isinstance(value, str) else _encode(_encodable(value))
    limit = _limit(name, value)
    return value if len(text) <= limit else shorten(text, limit)


def _line(fields: Mapping[str, Any]) -> str:
    try:
        return _encode(fields)
    except Exception:  # NaN, a key that is not a string, a circular value, …: keep the other fields
        return _encode({str(name): _encodable(value) for name, value in fields.items()})


def _encodable(value: object) -> object:
    try:
        _encode(value)
    except Exception:
        return safe_repr(value)
    return value


def safe_repr(value: object) -> str:
    """The repr of a value; its type if that fails."""
    try:
        return repr(value)
    except BaseException as error:
        if is_request(error):
            raise
        return f"<unprintable {qualname_of(type(value))}>"


_encode = json.JSONEncoder(default=safe_repr, allow_nan=False).encode
