"""Look: reads many keys in a few calls; a key of another type than expected counts as empty.

``present`` leaves out those that are not there, as most lists of a large fleet. Used by ``api`` and by the
server; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.portions import portions
from pyworkers.store import plain
from pyworkers.store.calls import Mode, Steps, command, every, script
from pyworkers.store.transport.replies import ReplyReader, integer, maybe_blob

# A script of this many reads takes Redis less than a millisecond, if no job has megabytes.
_PER_CALL = 500
_PER_EXISTS = 1000
# Halving finds one key of a group with twice its logarithm of commands; more than one in this many, singly.
_FEW = 16
_SHAPES: dict[str, ReplyReader] = {
    "length": integer,
    "active": maybe_blob,
    "since": maybe_blob,
    "head": maybe_blob,
}


def look(reads: Sequence[tuple[str, str]]) -> Steps[list[Any]]:
    """The replies to pairs of a key and how to read it (``scripts/look.lua``).

    None is the value of a key that cannot be read, because it is of another type.
    """
    found: list[Any] = []
    for some in portions(reads, _PER_CALL):
        names, kinds = zip(*some, strict=True)
        reading = script("look", names, kinds, partial(_read, kinds))
        found += yield from plain.or_plain(reading, partial(plain.look, names, kinds))
    return found


def present(names: Sequence[str]) -> Steps[list[str]]:
    """The keys among these that exist, by few commands if few do. An unreadable one counts as there."""
    found: set[str] = set()
    groups: list[Sequence[str]] = list(portions(list(dict.fromkeys(names)), _PER_EXISTS))
    while groups:
        counts = yield from every([command("EXISTS", *group) for group in groups], Mode.LENIENT)
        divided: list[Sequence[str]] = []
        for group, count in zip(groups, counts, strict=True):
            if count is None or count == len(group):
                found.update(group)
            elif count:
                size = 1 if count * _FEW > len(group) else (len(group) + 1) // 2
                divided += portions(group, size)
        groups = divided
    return [name for name in names if name in found]


def since(stored: bytes | None) -> float | None:
    """A time that ``look`` has read, in epoch seconds; None if there is none."""
    try:
        return None if stored is None else timestamps.read(simplejson.loads(stored))
    except (ValueError, RecursionError):
        return None


def _read(kinds: Sequence[str], replies: Any) -> list[Any]:
    return [
        None if isinstance(reply, Exception) else _SHAPES[kind](reply)
        for kind, reply in zip(kinds, replies, strict=True)
    ]
