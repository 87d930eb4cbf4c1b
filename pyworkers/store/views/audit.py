"""Audit: the last thousand actions of people, in the dashboard or by a command, the latest first.

Used by ``api``; never by the server. Times are Redis' clock, because several dashboards and commands write.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyworkers.protocol import envelope
from pyworkers.protocol.keys import Keys
from pyworkers.store import full
from pyworkers.store.calls import Mode, Steps, command, every
from pyworkers.store.heartbeat import clock
from pyworkers.store.transport.replies import integer

MOST = 1000
"""The number of actions that are kept."""


def write(keys: Keys, fields: Mapping[str, str]) -> Steps[float]:
    """Add an action, and drop the oldest above ``MOST``. Returns its time, in epoch seconds."""
    at = yield from clock()
    entry = envelope.encode({"at": round(at, 3), **fields}).encode(errors="surrogateescape")
    yield from full.writes(keys, ("LPUSH", keys.audit, entry), ("LTRIM", keys.audit, 0, MOST - 1), read=list)
    return at


def read(keys: Keys, first: int, count: int) -> Steps[tuple[int, list[bytes]]]:
    """The number of actions, and those from ``first`` on."""
    total, entries = yield from every(
        [
            command("LLEN", keys.audit, read=integer),
            command("LRANGE", keys.audit, first, first + count - 1, read=list),
        ],
        Mode.LENIENT,
    )
    return total or 0, entries or []
