"""Look: reads many keys in a few calls; a key of another type than expected counts as empty.

Used by ``api`` and by the server's HTTP endpoint; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import simplejson

from pyworkers.protocol import timestamps
from pyworkers.protocol.portions import portions
from pyworkers.store import plain
from pyworkers.store.calls import Steps, script
from pyworkers.store.transport.replies import ReplyReader, integer, maybe_blob

# A script of this many reads takes Redis less than a millisecond, if no job has megabytes.
_PER_CALL = 500
_SHAPES: dict[str, ReplyReader] = {
    "length": integer,
    "active": maybe_blob,
    "since": maybe_blob,
    "head": maybe_blob,
}


def look(reads: Sequence[tuple[str, str]]) -> Steps[list[Any]]:
    """The replies to pairs of a key and how to read it (``scripts/look.lua``).

    None stands for a key that cannot be read, because it is of another type.
    """
    found: list[Any] = []
    for some in portions(reads, _PER_CALL):
        names, kinds = zip(*some, strict=True)
        reading = script("look", names, kinds, partial(_read, kinds))
        found += yield from plain.or_plain(reading, partial(plain.look, names, kinds))
    return found


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
