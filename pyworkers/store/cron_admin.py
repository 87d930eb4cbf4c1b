"""Cron admin: reads all cron entries, and changes those of run time, each change one transaction.

Used by ``api``, in the command line and in users' programs; never by the server. It moves opaque bytes, and
never decides what an entry means.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Call, Mode, Steps, command, decoded, every, one, script


@dataclass(frozen=True, slots=True)
class Stored:
    """All that Redis holds: definitions of the run-time entries by name, lists of the entries that servers
    declare, names of the paused entries, and each entry's last slot, or the time since which it is known.
    """

    added: Mapping[bytes, bytes]
    declared: list[bytes]
    paused: set[bytes]
    last: Mapping[bytes, bytes]


def read(keys: Keys) -> Steps[Stored]:
    """Read everything."""
    commands = [command("HGETALL", keys.cron_entries), command("SMEMBERS", keys.cron_paused)]
    commands += [command("HGETALL", keys.cron_last), command("HKEYS", keys.owners)]
    added, paused, last, owners = yield from every(commands)
    names = [keys.cron_declared(decoded(owner)) for owner in owners]
    lists = (yield from one("MGET", *names, read=list)) if names else []
    return Stored(added, [found for found in lists if found is not None], set(paused), last)


def put(keys: Keys, name: str, definition: bytes, now: float, *, exists: bool | None) -> Call[bool]:
    """Write a run-time entry, which must ``exist`` already or must not; False if that is not so."""
    names = [keys.cron_entries, keys.cron_last, keys.cron_version]
    condition = "" if exists is None else int(exists)
    return script("cron_put", names, [name, definition, int(now), _version(), condition], bool)


def remove(keys: Keys, name: str) -> Call[bool]:
    """Remove a run-time entry; False if there is none."""
    names = [keys.cron_entries, keys.cron_last, keys.cron_version, keys.cron_paused]
    return script("cron_remove", names, [name, _version()], bool)


def pause(keys: Keys, name: str) -> Call[bool]:
    """Pause an entry; False if it was paused already."""
    commands = [command("SADD", keys.cron_paused, name), command("SET", keys.cron_version, _version())]
    return Call(commands, lambda replies: bool(replies[0]), Mode.TRANSACTION)


def resume(keys: Keys, name: str, now: float) -> Call[bool]:
    """Undo ``pause``; False if the entry was not paused."""
    names = [keys.cron_paused, keys.cron_last, keys.cron_version]
    return script("cron_resume", names, [name, int(now), _version()], bool)


def _version() -> str:
    # Random: after a FLUSHALL, a counter would reach the same number again.
    return os.urandom(8).hex()
