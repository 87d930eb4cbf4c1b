"""Suspects: reads the entries of marked jobs, and writes which suspect a server runs.

Run by the master. ``recover.lua`` counts the jobs; this module decides nothing. If Redis refuses a command
(the key has another type), there are no entries: the jobs run, and none is held responsible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.suspects import SuspectEntry
from pyworkers.store.calls import Mode, Request, command, every

ENTRIES_TTL_S = 86_400
"""The life of all entries after the last change. The entry of a job that ends is deleted at once."""


class NotedSuspects(NamedTuple):
    """The field of the suspect that a server runs, empty if none; and the requested entries."""

    running: str
    entries: list[SuspectEntry]


def read(keys: Keys, identity: str, fields: Sequence[str]) -> Request[NotedSuspects]:
    """The suspect that a server runs, and these entries."""
    wanted = [command("HGET", keys.suspects, field) for field in (identity, *fields)]
    return Request(wanted, _found, Mode.LENIENT)


def run_alone(keys: Keys, identity: str, field: str) -> Request[object]:
    """Note that a server runs this suspect: if the server dies, the job is held responsible.

    All entries live for another day from now.
    """
    noted = command("HSET", keys.suspects, identity, field)
    prolonged = command("EXPIRE", keys.suspects, ENTRIES_TTL_S)
    return every([noted, prolonged], Mode.LENIENT)


def run_none(keys: Keys, identity: str) -> Request[object]:
    """Note that a server runs no suspect."""
    return every([command("HDEL", keys.suspects, identity)], Mode.LENIENT)


def _found(replies: list[Any]) -> NotedSuspects:
    running, *entries = replies
    return NotedSuspects(
        (running or b"").decode(errors="replace"), [SuspectEntry.parse(entry) for entry in entries]
    )
