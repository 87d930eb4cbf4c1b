"""Awaiting: the ends of tracked jobs for which programs wait, all of them by one blocking read.

Run by the dashboard. A client waits for one job over its own connection (tracking.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, every, one
from pyworkers.store.heartbeat import clock

_NOTES_LIFE_S = 3600


def ended(keys: Keys, jids: Sequence[str], block_ms: int) -> Steps[list[str]]:
    """The jobs among these that have ended; blocks for a time if none has.

    A job whose result cannot be read, because another program has written its key, counts as ended.
    """
    names = [keys.result(jid) for jid in jids]
    parts = ("COUNT", 1, "BLOCK", block_ms, "STREAMS", *names, *("0" for _ in names))
    try:
        found: set[str] = yield from one("XREAD", *parts, read=_streams)
        return [jid for jid, name in zip(jids, names, strict=True) if name in found]
    except StoreError as error:
        if error.code != "WRONGTYPE":
            raise
    reads = [command("XRANGE", name, "-", "+", "COUNT", 1) for name in names]
    entries = yield from every(reads, Mode.LENIENT)
    return [jid for jid, entry in zip(jids, entries, strict=True) if entry != []]


def note(keys: Keys, jids: Sequence[str]) -> Steps[None]:
    """Note that programs wait for these jobs, so that a sweep ends those that are gone (tracking.py)."""
    now = yield from clock()
    scores = [part for jid in jids for part in (now, jid)]
    waits = [command("ZADD", keys.awaited, *scores), command("EXPIRE", keys.awaited, _NOTES_LIFE_S)]
    yield from every(waits, Mode.LENIENT)


def _streams(reply: Any) -> set[str]:
    """The names of the streams that have an entry. In RESP3 the reply is a map."""
    names = reply if isinstance(reply, dict) else [name for name, _ in reply or ()]
    return {name.decode(errors="surrogateescape") for name in names}
