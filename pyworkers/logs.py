"""Logging: configures structlog, and sends the standard library's records through it.

A process calls ``configure`` once; its forks log the same way, each with its own pid. A line is one write,
because many processes share one stderr. If the destination is closed, full or blocked, lines are dropped: the
caller gets no exception and is blocked for a moment at most. Nothing here chooses events or hides fields: a
text beyond a limit loses its middle, and on a console an unprintable character is escaped.
"""

from __future__ import annotations

import json
import logging
import os
import select
import stat
import sys
import time
import traceback
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor

from pyworkers.protocol.message import job_fields
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE
from pyworkers.text import printable, shorten

FORMATS = ("auto", "console", "json")

# Longer than a running reader takes to read from a full pipe; short against the master's limits of 2 seconds.
_PATIENCE_MS = 50
# Characters of a value that may be longer than an error message: a traceback, a list.
_MAX_LONG = 5 * MAX_ERROR_MESSAGE
_BLOCKS = ("exception", "stack")
_LONG = (*_BLOCKS, "traceback")
# The fields that structlog's renderer writes without quotes.
_BARE = ("timestamp", "level", "event", "logger", "logger_name")
_INDENT = "    "
_METHODS = ("debug", "info", "warning", "error", "critical", "exception")
_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class Logger:
    """A structlog logger that uses the latest ``configure``, even if the logger was made before.

    structlog's own lazy proxy takes a microsecond for each call, even if its level is filtered out; this one
    has the methods of the logger that was configured last. A logger that ``bind`` returns is not updated.
    """

    _name: str | None = None

    def __init__(self, name: str | None) -> None:
        self._name = name
        self.follow()

    def __getattr__(self, method: str) -> Any:
        logger = structlog.get_logger()
        return getattr(logger.bind(logger=self._name) if self._name else logger, method)

    def follow(self) -> None:
        """Use the present configuration; without one, every call gets a logger from structlog."""
        for method in _METHODS:
            vars(self).pop(method, None)
        if structlog.is_configured():
            bound = self.bind()
            vars(self).update({method: getattr(bound, method) for method in _METHODS})


# Global, as structlog's configuration and the root logger are.
_loggers: dict[str | None, Logger] = {}


def get_logger(name: str | None = None) -> Logger:
    """The logger of a name, which becomes the field ``logger``. Cheap to call; the result may be kept."""
    if name not in _loggers:
        _loggers[name] = Logger(name)
    return _loggers[name]


def configure(
    level: str,
    format: str = "auto",
    stream: TextIO | None = None,
    *,
    patience_ms: int = _PATIENCE_MS,
    **constant: object,
) -> None:
    """Send events of ``level`` and above, structlog's and the standard library's, to ``stream`` (stderr).

    ``format`` is one of ``FORMATS``; ``auto`` is ``console`` on a terminal and ``json`` elsewhere. The
    ``constant`` fields, e.g. ``identity``, go into every JSON line, beside the pid. A line waits
    ``patience_ms`` for room in a full pipe, and is dropped then. May be called again.
    """
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is none of {', '.join(FORMATS)}")
    sink = _Sink(sys.stderr if stream is None else stream, patience_ms)
    console = format == "console" or (format == "auto" and sink.is_terminal)
    processors = _processors(constant, console, sink.is_terminal)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        context_class=dict,
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,  # the application's loggers must follow a `configure` after the fork
    )
    _bridge(level.upper(), _Bridge(processors, sink))


def reset() -> None:
    """Undo ``configure``."""
    structlog.reset_defaults()
    _bridge("WARNING")


class _Bridge(logging.Handler):
    """Passes the standard library's records through the same processors to the same sink."""

    def __init__(self, processors: list[Processor], sink: _Sink) -> None:
        super().__init__()
        self._processors = processors
        self._sink = sink

    def emit(self, record: logging.LogRecord) -> None:
        extra = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        fields: Any = {"logger": record.name, **extra, "event": _message(record)}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        if record.stack_info:
            fields["stack"] = record.stack_info
        try:
            for process in self._processors:
                fields = process(None, record.levelname.lower(), fields)
        except structlog.DropEvent:
            return
        self._sink.write(fields)

    def close(self) -> None:
        self._sink.close()
        super().close()


def _bridge(level: str, *handlers: _Bridge) -> None:
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    for logger in _loggers.values():
        logger.follow()


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the format does not fit its arguments: log both
        return f"{record.msg!r} % {_safe_repr(record.args)}"


def _processors(constant: Mapping[str, object], console: bool, colors: bool) -> list[Processor]:
    timestamp = _Timestamp().now

    def head(_: object, method: str, fields: EventDict) -> EventDict:
        first = {"timestamp": timestamp(), "level": method, "event": fields.get("event")}
        # A console shows one server, so its identity is left out.
        whence = {} if console else {**constant, "pid": os.getpid()}
        return {**first, **whence, **job_fields(), **fields, **first}

    exceptions = structlog.processors.ExceptionRenderer(_traceback)
    if not console:
        return [structlog.contextvars.merge_contextvars, head, exceptions, _json]
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors and not os.environ.get("NO_COLOR"),
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(logger: Any, method: str, fields: EventDict) -> str:
        try:
            return renderer(logger, method, _for_terminal(fields))
        except Exception:  # a value with a broken __repr__
            return _json(logger, method, fields)

    return [structlog.contextvars.merge_contextvars, head, exceptions, render]


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


def _traceback(exc_info: Any) -> str:
    """Python's own text of an exception and its causes, without the middle of a message that is too long."""
    pieces = traceback.TracebackException(*exc_info, compact=True).format()
    return "".join(shorten(piece, MAX_ERROR_MESSAGE) for piece in pieces).rstrip("\n")


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
    return {printable(name): _shown(name, value) for name, value in fields.items()}


def _shown(name: str, value: object) -> object:
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
    # The length of the line is known; that of each field would take time for every job.
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
        return _safe_repr(value)
    return value


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<unprintable {type(value).__name__}>"


_encode = json.JSONEncoder(default=_safe_repr, allow_nan=False).encode


class _Sink:
    """The destination of lines: each is one write, or is dropped.

    The master must not block, so pipes and terminals are opened again, non-blocking: O_NONBLOCK on the stderr
    that the process was given would be set for every process that shares it.
    """

    def __init__(self, stream: TextIO | None, patience_ms: int) -> None:
        self._stream = stream
        self._patience_ms = patience_ms
        self._stream_fd = _fileno(stream)
        self._own_fd = _open_again(self._stream_fd)
        self._is_file = _is_file(self._stream_fd)
        self._dropped = 0
        self._torn = False
        self.is_terminal = self._stream_fd is not None and os.isatty(self._stream_fd)

    def write(self, line: str) -> None:
        """Write ``line`` and a newline, or count it as dropped; the next success logs the number."""
        try:
            complete = self._send(f"{line}\n")
        except (OSError, ValueError):  # closed, reset, full; a closed Python stream raises ValueError
            complete = False
        if not complete:
            self._dropped += 1
        elif self._dropped:
            count, self._dropped = self._dropped, 0
            get_logger().warning("log.dropped", count=count)

    debug = info = warning = error = critical = write

    def close(self) -> None:
        """Close the descriptor opened here; a logger that is still bound to this sink uses the stream."""
        own, self._own_fd = self._own_fd, None
        if own is not None and _is_same_file(own, self._stream_fd):
            os.close(own)

    def _send(self, line: str) -> bool:
        fd = self._stream_fd if self._own_fd is None else self._own_fd
        if fd is None:
            return self._send_without_fd(line)
        # If only a part of the last line was written, end that line first.
        data = ("\n" * self._torn + line).encode(errors="backslashreplace")
        written = 0
        try:
            while written < len(data) and self._may_write(fd):
                written += os.write(fd, data[written:])
        finally:
            self._torn = written < len(data) if written else self._torn
        return written == len(data)

    def _may_write(self, fd: int) -> bool:
        """False if a write would block, now and for the patience that is left."""
        return self._is_file or _is_writable(fd, 0 if self._dropped else self._patience_ms)

    def _send_without_fd(self, line: str) -> bool:
        if self._stream is not None:  # None is Python's stderr in a process that was started without one
            self._stream.write(line)
            self._stream.flush()
        return True


def _fileno(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):  # held in memory, or closed
        return None


def _open_again(fd: int | None) -> int | None:
    """The pipe or terminal ``fd`` once more, non-blocking; None where that is not possible or not needed."""
    try:
        if fd is None:
            return None
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            return None
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # no /proc, or opened by another user: only `_is_writable` keeps a write from blocking
        return None


def _is_file(fd: int | None) -> bool:
    """True for a regular file: a write to it never waits for a reader."""
    try:
        return fd is not None and stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def _is_writable(fd: int, patience_ms: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(patience_ms))


def _is_same_file(fd: int, other: int | None) -> bool:
    """True if both are one open file. A child may have closed unknown descriptors and reused the number."""
    try:
        return other is not None and os.path.sameopenfile(fd, other)
    except OSError:
        return False
