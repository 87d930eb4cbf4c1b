"""CutRecord: a large job for display, from its first and its last bytes.

Pure. The fields of the envelope that are there are read; all others, mostly the arguments, are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import simplejson

from pyworkers.api.record import JobRecord
from pyworkers.protocol import envelope

_DECODER = simplejson.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
# A member that follows another one. Within a text it would have a backslash before its quotes.
_MEMBER = re.compile(
    r',[ \t\n\r]*(?="(?:class|jid|queue|created_at|enqueued_at|at|error_\w+|retry\w*|failed_at)")'
)
_MOST_TRIES = 50


class CutRecord(JobRecord):
    """A job of which only both ends were read; ``raw`` holds the fields that were found, as JSON.

    It never holds the stored bytes: within a part of a value nothing can be hidden. Of bytes that are no
    object, it is the first one, for which the job is ``unreadable``.
    """

    def __init__(self, head: bytes, tail: bytes, length: int) -> None:
        begin = head.lstrip(b" \t\n\r")[:1]
        fields = {**dict(_from_beginning(_text(head))), **_to_end(_text(tail))} if begin == b"{" else {}
        super().__init__(_encoded(fields) if begin == b"{" else begin)
        self._length = length

    @property
    def length(self) -> int:
        """The size of the stored job in bytes."""
        return self._length

    @property
    def cut(self) -> bool:
        """True: fields are missing."""
        return True


def _from_beginning(text: str) -> Iterator[tuple[str, Any]]:
    """The members at the beginning of an object, up to the first one that is not whole."""
    place = _after_space(text, 0)
    while text[place : place + 1] in ("{", ","):
        try:
            name, value, place = _member(text, place + 1)
        except (ValueError, RecursionError):
            return
        # A number may go on.
        if text[place : place + 1] not in (",", "}"):
            return
        yield name, value


def _to_end(text: str) -> dict[str, Any]:
    """The members at the end of an object."""
    for found, _ in zip(_MEMBER.finditer(text), range(_MOST_TRIES), strict=False):
        try:
            members = _decoded("{" + text[found.end() :])
        except (ValueError, RecursionError):
            continue
        return members
    return {}


def _decoded(text: str) -> dict[str, Any]:
    value = _DECODER.decode(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _member(text: str, place: int) -> tuple[str, Any, int]:
    """A member of an object, and the place after it. Raises ValueError."""
    name, place = _DECODER.raw_decode(text, _after_space(text, place))
    place = _after_space(text, place)
    if not isinstance(name, str) or text[place : place + 1] != ":":
        raise ValueError
    value, place = _DECODER.raw_decode(text, _after_space(text, place + 1))
    return name, value, _after_space(text, place)


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _encoded(fields: dict[str, Any]) -> bytes:
    try:
        return envelope.encode(fields).encode(errors="replace")
    except (ValueError, TypeError, RecursionError):
        return b"{}"


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
