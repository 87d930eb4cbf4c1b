"""Locks: lists and releases the locks of unique jobs.

Run by ``api``; never by the server. A listing scans the names of all keys, a thousand at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyworkers.protocol.conditions import SCORE_SUFFIX
from pyworkers.protocol.keys import Keys, literal
from pyworkers.store.calls import Mode, Pages, Request, Steps, command, decoded, every, one, script
from pyworkers.store.transport.replies import nonzero

# Redis scans a thousand names in 1 to 2 ms (measured with ten million), and runs nothing else meanwhile.
_PER_SCAN = 1000
_PER_PAGE, _LOCKS_PER_PAGE = 20_000, 2000


class StoredLock(NamedTuple):
    """A lock: its ``unique_key``, the jid of the job that holds it, and the seconds until it expires.

    ``ttl_s`` is None if it never expires: another program wrote it.
    """

    key: str
    jid: str
    ttl_s: float | None


class LockPage(NamedTuple):
    """Some locks, in no order; ``cursor`` leads to the next page, 0 at the end."""

    cursor: int
    scanned: int
    """The number of names, of keys of all kinds, that were looked through for this page, about."""
    locks: list[StoredLock]


class Locks(Pages[StoredLock]):
    """All locks, in no order. A lock that stays is listed at least once, perhaps twice."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._cursor = 0

    def next_page(self) -> Steps[list[StoredLock]]:
        self._cursor, names = yield from _scan(self._keys, self._cursor, _PER_SCAN)
        self.ended = self._cursor == 0
        return (yield from _locks(self._keys, names))


def read_lock_page(keys: Keys, cursor: int, count: int, text: str = "") -> Steps[LockPage]:
    """Read locks from the cursor of an earlier page, or 0: about ``count``, or fewer if they are rare.

    ``text``: only locks with this in their key, or with this jid. One page looks through twenty thousand
    names or two thousand locks at most, some 50 ms.
    """
    found: list[StoredLock] = []
    scanned = looked = 0
    # Where most keys are locks, a large portion would be a page too long to read.
    portion = _PER_SCAN if text else count
    while scanned < _PER_PAGE and looked < _LOCKS_PER_PAGE and len(found) < count:
        cursor, names = yield from _scan(keys, cursor, portion)
        found += yield from _locks(keys, names, text)
        scanned, looked, portion = scanned + portion, looked + len(names), portion if names else _PER_SCAN
        if cursor == 0:
            break
    return LockPage(cursor, scanned, found)


def _scan(keys: Keys, cursor: int, count: int) -> Steps[tuple[int, list[str]]]:
    """The next cursor, and the keys of the locks among the next ``count`` names."""
    options = ("MATCH", f"{literal(keys.unique(''))}*", "COUNT", count, "TYPE", "string")
    following, found = yield from one("SCAN", cursor, *options, read=tuple)
    return int(following), [name for name in map(decoded, found) if not name.endswith(SCORE_SUFFIX)]


def _locks(keys: Keys, names: Sequence[str], text: str = "") -> Steps[list[StoredLock]]:
    """The locks with these names that fit ``text``."""
    prefix = keys.unique("")
    jids = (yield from one("MGET", *names, read=list)) if names else []
    held = [(name, decoded(jid)) for name, jid in zip(names, jids, strict=True) if jid is not None]
    fitting = [(name, jid) for name, jid in held if text in name.removeprefix(prefix) or text == jid]
    ttls = yield from every([command("PTTL", name) for name, _ in fitting], Mode.LENIENT)
    return [
        StoredLock(name.removeprefix(prefix), jid, None if ttl is None or ttl < 0 else ttl / 1000)
        for (name, jid), ttl in zip(fitting, ttls, strict=True)
    ]


def read(keys: Keys, key: str) -> Request[StoredLock | None]:
    """One lock by its ``unique_key``; None if it is not held."""
    name = keys.unique(key)

    def lock(replies: list[Any]) -> StoredLock | None:
        jid, ttl = replies
        return None if jid is None else StoredLock(key, decoded(jid), None if ttl < 0 else ttl / 1000)

    return Request([command("GET", name), command("PTTL", name)], lock, Mode.LENIENT)


def release(keys: Keys, lock: StoredLock) -> Request[bool]:
    """Release a lock; False if the job no longer holds it."""
    name = keys.unique(lock.key)
    return script("unlock", [name, f"{name}{SCORE_SUFFIX}"], [lock.jid], nonzero, keys.namespace)
