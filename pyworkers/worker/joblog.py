"""Joblog: writes the log of one run into Redis, line by line, while the job runs.

Runs in the worker process, in the threads of the job; imported with the first line. A line is sent at once;
beyond a hundred in a second, lines are sent with the next ones, or with the end of the run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyworkers import logs
from pyworkers.observing.requests import is_request
from pyworkers.protocol.effects import AppendLog, Effect
from pyworkers.protocol.effects.kinds import MAX_LOG_BYTES
from pyworkers.protocol.flow.joblog import alive_s, encoded, log_key
from pyworkers.protocol.message import hear

_AT_ONCE = 100
# Not fields of the line itself.
_OWN = ("event", "exc_info", "stack_info", "stack")
_UNREADABLE = "<unprintable>"


__all__ = ["LogNotes", "alive_s", "listen", "parts_of"]


class LogNotes:
    """The log of one run; ``note`` sends an effect."""

    def __init__(self, jid: str, keep_s: int, note: Callable[[Effect], None]) -> None:
        self._key = log_key(jid)
        self._keep_s = keep_s
        self._note = note
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        # Reentrant: a signal handler may log while its thread holds it.
        self._lock = threading.RLock()
        self._run = os.urandom(4).hex()
        """Names these lines: Redis writes none of them twice."""
        self._lines: list[bytes] = []
        self._size = 0
        self._next = 0
        """The number of the first of the lines that are not sent."""
        self._sent = 0
        self._second = 0

    def add(self, level: str, text: str, fields: Mapping[str, Any]) -> None:
        """Write a line, or keep it if too many were written in this second."""
        if self._pid != os.getpid():
            # A fork of the job, which must not number its lines as the job does.
            self._begin()
        at = time.time()
        line = _encoded(at, level, text, fields)
        with self._lock:
            if self._closed:
                return
            self._keep(line)
            if int(at) != self._second:
                self._second, self._sent = int(at), 0
            if self._sent < _AT_ONCE:
                self._sent += 1
                self._note(self._taken())

    def rest(self) -> list[Effect]:
        """The lines that were kept: they belong to the end of the run, after which none is written."""
        with self._lock:
            self._closed = True
            return [self._unsent()] if self._lines else []

    def _keep(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > MAX_LOG_BYTES:
            self._size -= len(self._lines.pop(0))
            self._next += 1

    def _taken(self) -> Effect:
        effect = self._unsent()
        self._next += len(self._lines)
        self._lines, self._size = [], 0
        return effect

    def _unsent(self) -> Effect:
        return AppendLog(self._key, self._run, self._next, b"\n".join(self._lines), self._keep_s)


def listen() -> None:
    """Have the log lines of this process pass ``hear``, from its first tracked job on."""
    logs.listen(_heard)


def _heard(_logger: Any, method: str, event: Any) -> Any:
    hear(method, event)
    return event


def _encoded(at: float, level: str, text: str, fields: Mapping[str, Any]) -> bytes:
    """The line; without its fields, or its text, if these are objects that cannot be read."""
    for some in (text, fields), (text, {}):
        try:
            return encoded(at, level, *some)
        except BaseException as error:
            if is_request(error):
                raise
    return encoded(at, level, _UNREADABLE, {})


def parts_of(event: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text and the fields of a log event; an error is a field, with its traceback."""
    fields = {name: value for name, value in event.items() if name not in _OWN}
    if error := logs.traceback_of(event.get("exc_info")):
        fields["exception"] = error
    try:
        return str(event.get("event")), fields
    except BaseException as problem:
        if is_request(problem):
            raise
        return _UNREADABLE, fields
