"""Parts: reads jobs of a queue or a sorted set by place, some at a time, the large ones cut.

Used by ``api``; never by the server. It only reads, and never a whole queue or set in one command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pyworkers.protocol.extract import LARGE_BYTES
from pyworkers.protocol.portions import portions
from pyworkers.store import plain
from pyworkers.store.calls import Steps, script
from pyworkers.store.transport.replies import blob, integer

HEAD_BYTES, TAIL_BYTES = 2048, 4096
# Redis takes 2 ms for a megabyte.
_MOST_BYTES = 24 * 1024 * 1024
_AT_A_TIME = 10


class Position(NamedTuple):
    """Where a read goes on: a place, and the job before it, which is found again if the list has moved."""

    place: int = 0
    token: str = ""
    score: str = ""


class Piece(NamedTuple):
    """A job of a part: whole, or, if it is large, its first and its last bytes.

    ``score`` is the text that Redis writes, empty in a queue.
    """

    place: int
    score: str
    token: str
    length: int
    head: bytes
    tail: bytes

    @property
    def whole(self) -> bool:
        """True if ``head`` is the whole job."""
        return self.length == len(self.head)


class Named(NamedTuple):
    """A job as a page has named it (``Piece``)."""

    token: str
    place: int
    score: str = ""


class Again(NamedTuple):
    """A job that was found again, whole, and its place by then."""

    raw: bytes
    place: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Some jobs, in order. ``total``: the jobs in the key, -1 if it is a key of another type."""

    total: int
    after: Position
    pieces: tuple[Piece, ...]


def read_part(
    key: str,
    begin: Position,
    count: int,
    *,
    descending: bool = False,
    containing: Sequence[str] = (),
    most: int | None = None,
    most_bytes: int = _MOST_BYTES,
) -> Steps[Slice]:
    """Read ``count`` jobs, fewer if they are large, and return at most ``most`` that contain all these texts.

    Places count from the lowest score, or from the job that is popped next; ``descending``: from the other
    end. A text is ``=NAMES:TEXT``, or, in lower case for both cases, ``~NAMES:TEXT``; it is in the value
    of a member with one of the names, which commas separate, or anywhere if there are none.
    """
    way = "down" if descending else "up"
    limits = (count, most_bytes, LARGE_BYTES, HEAD_BYTES, TAIL_BYTES, most or count)
    reading = script("browse/read", [key], [way, *begin, *limits, *containing], list)
    instead = partial(plain.read, key, begin, limits, containing, descending=descending)
    return _part((yield from plain.or_plain(reading, instead)))


def find_again(key: str, jobs: Sequence[Named], *, descending: bool) -> Steps[list[Again | None]]:
    """The jobs that a page has named, whole; None for one that is gone."""
    found: list[Again | None] = []
    for some in portions(jobs, _AT_A_TIME):
        args = [arg for job in some for arg in job]
        finding = script("browse/find", [key], ["down" if descending else "up", *args], list)
        instead = partial(plain.find, key, some, descending=descending)
        found += _again((yield from plain.or_plain(finding, instead)))
    return found


def _part(reply: list[Any]) -> Slice:
    total, place, token, score, *flat = reply
    after = Position(integer(place), blob(token).decode(), blob(score).decode())
    return Slice(integer(total), after, tuple(_piece(*fields) for fields in portions(flat, 6)))


def _piece(place: int, score: bytes, token: bytes, length: int, head: bytes, tail: bytes) -> Piece:
    return Piece(integer(place), score.decode(), token.decode(), integer(length), blob(head), blob(tail))


def _again(reply: list[Any]) -> list[Again | None]:
    return [None if raw is None else Again(blob(raw), integer(place)) for raw, place in portions(reply, 2)]
