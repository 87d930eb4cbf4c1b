"""Thresholds that people have set, in one hash.

Used by ``api`` and ``stats``; never by the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pyworkers.config.thresholds import Threshold
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Command, Mode, Request, command, one
from pyworkers.store.transport.replies import integer, nonzero

MOST = 50
"""A page compares each of its queues with each of them."""
LONGEST = 200
"""The bytes of a name: a pattern of queues and the measure."""


def reading(keys: Keys) -> Command:
    """The command whose reply ``stored_in`` reads."""
    return command("HGETALL", keys.thresholds)


def stored_in(found: Mapping[bytes, bytes] | None) -> list[Threshold]:
    """At most fifty thresholds of a hash, in the order of their names. Other entries are ignored."""
    known = (_threshold(name, above) for name, above in sorted((found or {}).items()))
    return list(islice((found for found in known if found is not None), MOST))


def read_thresholds(keys: Keys) -> Request[list[Threshold]]:
    """Those that are set; none in a key of another type."""

    def read(replies: list[Any]) -> list[Threshold]:
        return stored_in(replies[0])

    return Request([reading(keys)], read, Mode.LENIENT)


def write_threshold(keys: Keys, threshold: Threshold) -> Request[int]:
    """Set it, in place of one with its name."""
    return one("HSET", keys.thresholds, threshold.name, threshold.above, read=integer)


def remove_threshold(keys: Keys, name: str) -> Request[bool]:
    """Remove the one with this name; False if there is none."""
    return one("HDEL", keys.thresholds, name, read=nonzero)


def _threshold(name: bytes, above: bytes) -> Threshold | None:
    if len(name) > LONGEST or len(above) > LONGEST:
        return None
    try:
        found = Threshold.parse(f"{name.decode()} > {above.decode()}")
    except ValueError:
        return None
    # Another text for the same name cannot be removed by its name.
    return found._replace(is_set=True) if found.name.encode() == name else None
