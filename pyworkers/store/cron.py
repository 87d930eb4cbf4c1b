"""Cron: fires slots, and reads and changes the run-time entries, each change in one transaction.

Used by the master and by ``api``. It moves opaque bytes, reads no clock, and never decides which slot is due.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Call, Mode, Steps, command, decoded, every, one, script
from pyworkers.store.transport.replies import maybe_blob, nonzero


class Firing(NamedTuple):
    """One slot of an entry: its time in epoch seconds, and the job to enqueue.

    Redis forgets after ``life_s`` seconds that the slot was fired, so ``life_s`` must exceed the entry's
    grace. ``definition`` holds the stored bytes of a run-time entry; it is empty for any other entry.
    """

    name: str
    slot: int
    payload: bytes
    queue: str
    life_s: int
    definition: bytes = b""


class Changed(NamedTuple):
    """The changes made at run time: definitions by name, and the names of the paused entries."""

    entries: dict[bytes, bytes]
    paused: set[bytes]


@dataclass(frozen=True, slots=True)
class Stored:
    """All that Redis holds: definitions of the run-time entries by name, lists of the entries that servers
    declare, names of the paused entries, and each entry's last slot, or the time since which it is known.
    """

    added: Mapping[bytes, bytes]
    declared: list[bytes]
    paused: set[bytes]
    last: Mapping[bytes, bytes]


def fire(keys: Keys, firing: Firing) -> Call[bool]:
    """Enqueue the job of a slot, unless it was enqueued before. True if this call enqueued it.

    Also False if the entry is paused, or is a run-time entry whose definition has changed since. Safe to send
    again after a lost reply.
    """
    name, slot, payload, queue, life_s, definition = firing
    names = [keys.cron_slot(name, slot), keys.queues, keys.queue(queue), keys.cron_last]
    names += (keys.cron_entries, keys.cron_paused)
    return script("cron/fire", names, [life_s, queue, payload, name, slot, definition], nonzero)


def last_slots(keys: Keys) -> Call[dict[str, int]]:
    """The last slot fired of each entry by name, or the time since which it is known (epoch seconds)."""
    return one("HGETALL", keys.cron_last, read=_slots)


def register(keys: Keys, names: Iterable[str], now: int) -> Call[list[Any]]:
    """Store ``now`` as the time since which entries are known; entries known already keep their time."""
    return every([command("HSETNX", keys.cron_last, name, now) for name in names])


def version(keys: Keys) -> Call[bytes | None]:
    """A value that differs after each change at run time; None before the first."""
    return one("GET", keys.cron_version, read=maybe_blob)


def changed(keys: Keys) -> Call[Changed]:
    """The run-time entries and the paused ones, at one moment."""
    commands = [command("HGETALL", keys.cron_entries), command("SMEMBERS", keys.cron_paused)]
    return Call(commands, _changed, Mode.TRANSACTION)


def declare(keys: Keys, identity: str, entries: bytes, life_s: int) -> Call[bool]:
    """Store the entries of a server's code and configuration for ``read``; they expire after ``life_s``."""
    return one("SET", keys.cron_declared(identity), entries, "EX", life_s, read=bool)


def read(keys: Keys) -> Steps[Stored]:
    """Read all entries and their state."""
    commands = [command("HGETALL", keys.cron_entries), command("SMEMBERS", keys.cron_paused)]
    commands += [command("HGETALL", keys.cron_last), command("HKEYS", keys.owners)]
    added, paused, last, owners = yield from every(commands)
    names = [keys.cron_declared(decoded(owner)) for owner in owners]
    lists = (yield from one("MGET", *names, read=list)) if names else []
    return Stored(added, [found for found in lists if found is not None], set(paused), last)


def put(keys: Keys, name: str, definition: bytes, now: float, *, exists: bool | None) -> Call[bool]:
    """Write a run-time entry.

    ``exists``: True if it must exist already, False if it must not, None for either. Returns False,
    and writes nothing, if that condition is not met.
    """
    names = [keys.cron_entries, keys.cron_last, keys.cron_version]
    condition = "" if exists is None else int(exists)
    return script("cron/put", names, [name, definition, int(now), _version(), condition], bool)


def remove(keys: Keys, name: str) -> Call[bool]:
    """Remove a run-time entry; False if there is none."""
    names = [keys.cron_entries, keys.cron_last, keys.cron_version, keys.cron_paused]
    return script("cron/remove", names, [name, _version()], bool)


def pause(keys: Keys, name: str) -> Call[bool]:
    """Pause an entry; False if it was paused already."""
    commands = [command("SADD", keys.cron_paused, name), command("SET", keys.cron_version, _version())]
    return Call(commands, lambda replies: bool(replies[0]), Mode.TRANSACTION)


def resume(keys: Keys, name: str, now: float) -> Call[bool]:
    """Undo ``pause``; False if the entry was not paused."""
    names = [keys.cron_paused, keys.cron_last, keys.cron_version]
    return script("cron/resume", names, [name, int(now), _version()], bool)


def _changed(found: list[Any]) -> Changed:
    entries, paused = found
    return Changed(entries, set(paused))


def _slots(stored: dict[bytes, bytes]) -> dict[str, int]:
    return {name.decode(): int(slot) for name, slot in stored.items()}


def _version() -> str:
    # Random: after a FLUSHALL, a counter would reach the same number again.
    return os.urandom(8).hex()
