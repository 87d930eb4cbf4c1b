"""Readable: exceptions that can be read. An exception of an application may raise when it is read.

Pure; used where a job's exception is first caught, by the logs and by the integrations.
"""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

from pyworkers.observing.requests import is_request

_READ = ("__class__", "__traceback__", "__cause__", "__context__", "__suppress_context__", "args")
_QUALNAME, _NAMESPACE = type.__dict__["__qualname__"], type.__dict__["__dict__"]
_TRACEBACK = BaseException.__dict__["__traceback__"]
_TEXT = "(the exception cannot be read: an attribute of it, or of its class, raises)"


class Unreadable(Exception):
    """Replaces an exception that cannot be read, with its name and its traceback; ``kind`` is its class."""

    kind: type[BaseException] = BaseException

    def __str__(self) -> str:
        return _TEXT


class _Other(Exception):
    """A class that no exception has."""


def readable(error: BaseException) -> BaseException:
    """The exception itself, or its replacement if reading it raises."""
    try:
        for name in _READ:
            getattr(error, name)
        kind = type(error)
        # What ``except`` does not need, but ``isinstance``, a set of classes and a name do.
        isinstance(error, _Other)
        issubclass(kind, _Other)
        hash(kind)
        if isinstance(kind.__qualname__, str) and isinstance(kind.__module__, str) and kind.__mro__:
            return error
    except BaseException:
        pass
    return _standing_for(error)


def kind_of(error: BaseException) -> type[BaseException]:
    """The class of an exception, or of the one that it replaces."""
    return error.kind if isinstance(error, Unreadable) else type(error)


def qualname_of(kind: type) -> str:
    """The name of a class, without its metaclass."""
    return str(_QUALNAME.__get__(kind))


def _standing_for(error: BaseException) -> Unreadable:
    kind = type(error)
    name, module = qualname_of(kind), _NAMESPACE.__get__(kind).get("__module__")
    about: dict[str, Any] = {"__qualname__": name, "kind": kind}
    about["__module__"] = module if isinstance(module, str) else "?"
    made: type[Unreadable] = type(name.rpartition(".")[2], (Unreadable,), about)
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return made().with_traceback(trace)


def text_of(error: BaseException) -> str:
    """The text of an exception, also of one whose ``__str__`` raises."""
    try:
        return str(error)
    except BaseException as failed:
        if is_request(failed):
            raise
        return "(its text cannot be shown: __str__ failed)"


def pieces_of(exc_info: Any) -> list[str]:
    """Python's own text of an exception and its causes, in pieces; of one that cannot be read, its place."""
    try:
        found = traceback.TracebackException(*exc_info, compact=True)
        _drop_far_offsets(found)
        return list(found.format())
    except BaseException as error:  # an attribute of the exception, or of a cause, raises when it is read
        if is_request(error):
            raise
        kind, _, trace = exc_info
        text = f"{qualname_of(kind)}: (its traceback cannot be shown: {qualname_of(type(error))})\n"
        return ["Traceback (most recent call last):\n", *traceback.format_tb(trace), text]


def _drop_far_offsets(found: traceback.TracebackException) -> None:
    """Forget the places of syntax errors behind the end of their line: a blank is written for each."""
    waiting: list[traceback.TracebackException | None] = [found]
    while waiting:
        if (one := waiting.pop()) is None:
            continue
        waiting += (one.__cause__, one.__context__, *(one.exceptions or ()))
        last = len(getattr(one, "text", None) or "") + 1
        for name in ("offset", "end_offset"):
            place = getattr(one, name, None)
            if place is not None and not (isinstance(place, int) and -1 <= place <= last):
                setattr(one, name, None)
