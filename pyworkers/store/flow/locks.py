"""Locks: lists and releases the locks of unique jobs.

Run by ``api``; never by the server. A listing scans the names of all keys, a thousand at a time.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.terms import SCORE_SUFFIX
from pyworkers.store.calls import Call, Mode, Pages, Steps, command, decoded, every, one, script
from pyworkers.store.transport.replies import nonzero

# Redis scans a thousand names in 1 to 2 ms (measured with ten million), and runs nothing else meanwhile.
_PER_SCAN = 1000


class StoredLock(NamedTuple):
    """A lock: its ``unique_key``, the jid of the job that holds it, and the seconds until it expires.

    ``ttl_s`` is None if it never expires: another program wrote it.
    """

    key: str
    jid: str
    ttl_s: float | None


class Locks(Pages[StoredLock]):
    """All locks, in no order. A lock that stays is listed at least once, perhaps twice."""

    def __init__(self, keys: Keys) -> None:
        self._prefix = keys.unique("")
        self._pattern = re.sub(r"([\[\]*?\\])", r"\\\1", self._prefix) + "*"
        self._cursor = 0

    def next_page(self) -> Steps[list[StoredLock]]:
        options = ("MATCH", self._pattern, "COUNT", _PER_SCAN, "TYPE", "string")
        found: list[bytes]
        self._cursor, found = yield from one("SCAN", self._cursor, *options, read=tuple)
        self.ended = self._cursor == 0
        names = [name for name in map(decoded, found) if not name.endswith(SCORE_SUFFIX)]
        commands = [command(word, name) for name in names for word in ("GET", "PTTL")]
        replies = yield from every(commands, Mode.LENIENT)
        return [
            StoredLock(name.removeprefix(self._prefix), decoded(jid), None if ttl < 0 else ttl / 1000)
            for name, jid, ttl in zip(names, replies[::2], replies[1::2], strict=True)
            if jid is not None
        ]


def read(keys: Keys, key: str) -> Call[StoredLock | None]:
    """One lock by its ``unique_key``; None if it is not held."""
    name = keys.unique(key)

    def lock(replies: list[Any]) -> StoredLock | None:
        jid, ttl = replies
        return None if jid is None else StoredLock(key, decoded(jid), None if ttl < 0 else ttl / 1000)

    return Call([command("GET", name), command("PTTL", name)], lock, Mode.LENIENT)


def release(keys: Keys, lock: StoredLock) -> Call[bool]:
    """Release a lock; False if the job no longer holds it."""
    name = keys.unique(lock.key)
    return script("unlock", [name, f"{name}{SCORE_SUFFIX}"], [lock.jid], nonzero)
