"""Logging: configures structlog, and sends the standard library's records through it.

A process calls ``configure`` once; its forks log the same way, each with its own pid. A line is one write,
because many processes share one stderr. If the destination is closed, full or blocked, lines are dropped: the
caller gets no exception and is blocked for a moment at most. Nothing here chooses events or hides fields: a
text beyond a limit loses its middle, and on a console an unprintable character is escaped.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from pyworkers.logs.lines import processors_of, safe_repr
from pyworkers.logs.sink import Sink
from pyworkers.logs.tracebacks import plain

FORMATS = ("auto", "console", "json")

# Longer than a running reader takes to read from a full pipe; short against the master's limits of 2 seconds.
_PATIENCE_MS = 50
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
    ``constant`` fields, e.g. ``identity``, go into every JSON line, with the pid. A line waits
    ``patience_ms`` for room in a full pipe, and is dropped then. May be called again. Raises ValueError for
    another format, and KeyError for an unknown level.
    """
    if format not in FORMATS:
        raise ValueError(f"format {format!r} is none of {', '.join(FORMATS)}")
    sink = Sink(sys.stderr if stream is None else stream, patience_ms, _report_dropped)
    console = format == "console" or (format == "auto" and sink.is_terminal)
    processors = processors_of(constant, console, sink.is_terminal)
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        context_class=dict,
        logger_factory=lambda *_: sink,
        cache_logger_on_first_use=False,  # the application's loggers must follow a `configure` after the fork
    )
    _bridge(level.upper(), _Bridge(processors, sink))


def bind(values: Mapping[str, object]) -> None:
    """Bind values to structlog's context: the lines of this context have them as fields."""
    structlog.contextvars.bind_contextvars(**values)


def bound(values: Mapping[str, object]) -> AbstractContextManager[None]:
    """``bind`` for a block."""
    return structlog.contextvars.bound_contextvars(**values)


def listen(hear: Processor) -> None:
    """Have each event of this process pass ``hear`` first, which returns it. Once is enough."""
    if structlog.is_configured():
        processors = structlog.get_config()["processors"]
        if hear not in processors:
            # In place: each logger has this list.
            processors.insert(0, hear)


def traceback_of(exc_info: Any) -> str:
    """The traceback of the error that a log event has; empty without one."""
    if isinstance(exc_info, BaseException):
        exc_info = type(exc_info), exc_info, exc_info.__traceback__
    elif exc_info and not isinstance(exc_info, tuple):
        exc_info = sys.exc_info()
    return plain(exc_info) if exc_info and exc_info[0] is not None else ""


def reset() -> None:
    """Undo ``configure``."""
    structlog.reset_defaults()
    _bridge("WARNING")


class _Bridge(logging.Handler):
    """Passes the standard library's records through the same processors to the same sink."""

    def __init__(self, processors: list[Processor], sink: Sink) -> None:
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


def _report_dropped(count: int) -> None:
    get_logger().warning("log.dropped", count=count)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the format does not fit its arguments: log both
        return f"{safe_repr(record.msg)} % {safe_repr(record.args)}"
