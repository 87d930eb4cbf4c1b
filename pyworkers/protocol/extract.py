"""Extract: the bytes by which the exchange script finds a large job in its list, without the whole of it.

Pure; made by the master. Two jobs with equal extracts may differ elsewhere: the caller must know all jobs of
the list, and use an extract only if no other one of them has an equal one.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

LARGE_BYTES = 16 * 1024
"""The size above which a job is settled by an extract: below it, its bytes cost less than the search."""
# As in exchange.lua.
_EDGE, _SAMPLES, _SAMPLE = 1024, 32, 16
# As in shared/tokens.lua: 80 bits. Of ten million jobs, two have the same with a chance of 1 in 20 billion.
_TOKEN = 20


class Extract(NamedTuple):
    """The arguments of the script that represent a large job.

    ``held`` is the number of jobs that the list must hold: otherwise the caller does not know all of them,
    and the outcome is left. ``place`` is the probable index of the job in its list, -1 for the oldest.
    """

    held: int
    place: int
    length: int
    head: bytes
    tail: bytes
    samples: bytes


def extract(raw: bytes, held: int, place: int) -> Extract:
    """The extract of a job of more than ``LARGE_BYTES``."""
    return Extract(held, place, len(raw), raw[:_EDGE], raw[-_EDGE:], _samples(raw))


def equal_extracts(one: bytes, other: bytes) -> bool:
    """True if two jobs have equal extracts although they differ."""
    # The head first: it differs for most jobs, because producers put the id there.
    return (
        len(one) == len(other)
        and one[:_EDGE] == other[:_EDGE]
        and one[-_EDGE:] == other[-_EDGE:]
        and one != other
        and _samples(one) == _samples(other)
    )


def ends_of(raw: bytes) -> tuple[int, bytes, bytes]:
    """The part of an extract by which nearly all jobs differ: length, first and last bytes."""
    return len(raw), raw[:_EDGE], raw[-_EDGE:]


def _samples(raw: bytes) -> bytes:
    room = len(raw) - 2 * _EDGE - _SAMPLE
    starts = [_EDGE + n * room // (_SAMPLES - 1) for n in range(_SAMPLES)]
    return b"".join([raw[start : start + _SAMPLE] for start in starts])


def token(raw: bytes) -> str:
    """A short text that represents a job in an address or a form; browse/*.lua compute the same.

    Two large jobs that differ only between the samples have the same one.
    """
    if len(raw) > LARGE_BYTES:
        raw = b"%d" % len(raw) + raw[:_EDGE] + raw[-_EDGE:] + _samples(raw)
    return hashlib.sha1(raw, usedforsecurity=False).hexdigest()[:_TOKEN]
