"""Cron: fires slots, and reads and changes the run-time entries, each change in one transaction.

Used by the master and by ``api``. It moves opaque bytes, reads no clock, and never decides which slot is due.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.keys import Keys
from pyworkers.store import full
from pyworkers.store.calls import Mode, Request, Steps, command, decoded, every, one, script
from pyworkers.store.flow import conditions
from pyworkers.store.transport.replies import blob, integer, maybe_blob


class Firing(NamedTuple):
    """One slot of an entry: its time in epoch seconds, and the jobs to enqueue, perhaps none.

    Redis forgets after ``life_s`` seconds that the slot was fired, so ``life_s`` must exceed the entry's
    grace. ``definition`` holds the stored bytes of a run-time entry; it is empty for any other entry.
    """

    name: str
    slot: int
    jobs: Sequence[PushedJob]
    life_s: int
    definition: bytes = b""


class Changed(NamedTuple):
    """The changes made at run time: definitions by name, and the names of the paused entries."""

    entries: dict[bytes, bytes]
    paused: set[bytes]


@dataclass(frozen=True, slots=True)
class StoredCron:
    """All that Redis holds: definitions of the run-time entries by name, lists of the entries that servers
    declare, names of the paused entries, and each entry's last slot, or the time since which it is known.
    """

    added: Mapping[bytes, bytes]
    declared: list[bytes]
    paused: set[bytes]
    last: Mapping[bytes, bytes]


def fire(keys: Keys, firing: Firing) -> Request[Others | None]:
    """Enqueue the jobs of a slot, and return the duplicates; None if the slot was dealt with before.

    Also None if the entry is paused, or is a run-time entry whose definition has changed since. Safe to send
    again after a lost reply. Raises QueueFullError and DuplicateJobError, which deal with the slot as well.
    """
    name, slot, jobs, life_s, definition = firing
    names = [keys.cron_slot(name, slot), keys.cron_last, keys.cron_entries, keys.cron_paused]
    more_names, more = conditions.call_of(keys, jobs)
    args = [life_s, name, slot, definition, *more]
    return script("cron/fire", [*names, *more_names], args, partial(_fired, jobs), keys.namespace)


def _fired(jobs: Sequence[PushedJob], reply: Any) -> Others | None:
    return None if blob(reply[0]) == b"passed" else conditions.read(reply, jobs)


def claim(keys: Keys, identity: str, firing: Firing, claim_s: float) -> Request[float]:
    """Have a slot for this server, while a worker makes its jobs.

    Returns 0 if it has it now; the seconds until the claim of another server expires; or -1 if the slot is
    dealt with, as ``fire`` finds out. Safe to send again.
    """
    names = [keys.cron_slot(firing.name, firing.slot), keys.cron_entries, keys.cron_paused]
    args = [identity, int(claim_s * 1000), firing.name, firing.definition]
    return script("cron/claim", names, args, _left_s, keys.namespace)


def _left_s(reply: Any) -> float:
    left_ms = integer(reply)
    return -1.0 if left_ms < 0 else left_ms / 1000


def last_slots(keys: Keys) -> Request[dict[str, int]]:
    """The last slot fired of each entry by name, or the time since which it is known (epoch seconds)."""
    return one("HGETALL", keys.cron_last, read=_slots)


def register(keys: Keys, names: Iterable[str], now: int) -> Request[list[Any]]:
    """Store ``now`` as the time since which entries are known; entries known already keep their time."""
    return every([command("HSETNX", keys.cron_last, name, now) for name in names])


def version(keys: Keys) -> Request[bytes | None]:
    """A value that differs after each change at run time; None before the first."""
    return one("GET", keys.cron_version, read=maybe_blob)


def changed(keys: Keys) -> Request[Changed]:
    """The run-time entries and the paused ones, at one moment."""
    commands = [command("HGETALL", keys.cron_entries), command("SMEMBERS", keys.cron_paused)]
    return Request(commands, _changed, Mode.TRANSACTION)


def declare(keys: Keys, identity: str, entries: bytes, life_s: int) -> Request[bool]:
    """Store the entries of a server's code and configuration for ``read``; they expire after ``life_s``."""
    return one("SET", keys.cron_declared(identity), entries, "EX", life_s, read=bool)


def read(keys: Keys) -> Steps[StoredCron]:
    """Read all entries and their state."""
    commands = [command("HGETALL", keys.cron_entries), command("SMEMBERS", keys.cron_paused)]
    commands += [command("HGETALL", keys.cron_last), command("HKEYS", keys.owners)]
    added, paused, last, owners = yield from every(commands, Mode.LENIENT)
    names = [keys.cron_declared(decoded(owner)) for owner in owners or ()]
    lists = (yield from one("MGET", *names, read=list)) if names else []
    return StoredCron(
        added or {}, [found for found in lists if found is not None], set(paused or ()), last or {}
    )


def runs(keys: Keys, names: Sequence[str]) -> Request[list[dict[bytes, bytes]]]:
    """The stored runs of each of these entries (protocol/flow/runs.py)."""
    commands = [command("HGETALL", keys.cron_runs(name)) for name in names]
    return Request(commands, lambda found: [stored or {} for stored in found], Mode.LENIENT)


def put(keys: Keys, name: str, definition: bytes, now: float, *, exists: bool | None) -> Request[bool]:
    """Write a run-time entry.

    ``exists``: True if it must exist already, False if it must not, None for either. Returns False,
    and writes nothing, if that condition is not met.
    """
    names = [keys.cron_entries, keys.cron_last, keys.cron_version]
    condition = "" if exists is None else int(exists)
    return script(
        "cron/put", names, [name, definition, int(now), _version(), condition], bool, keys.namespace
    )


def remove(keys: Keys, name: str) -> Request[bool]:
    """Remove a run-time entry with its runs; False if there is none."""
    names = [keys.cron_entries, keys.cron_last, keys.cron_version, keys.cron_paused, keys.cron_runs(name)]
    return script("cron/remove", names, [name, _version()], bool, keys.namespace)


def pause(keys: Keys, name: str) -> Request[bool]:
    """Pause an entry; False if it was paused already."""
    commands = ("SADD", keys.cron_paused, name), ("SET", keys.cron_version, _version())
    return full.writes(keys, *commands, read=lambda replies: bool(replies[0]))


def resume(keys: Keys, name: str, now: float) -> Request[bool]:
    """Undo ``pause``; False if the entry was not paused."""
    names = [keys.cron_paused, keys.cron_last, keys.cron_version]
    return script("cron/resume", names, [name, int(now), _version()], bool, keys.namespace)


def _changed(found: list[Any]) -> Changed:
    entries, paused = found
    return Changed(entries, set(paused))


def _slots(stored: dict[bytes, bytes]) -> dict[str, int]:
    # Any program may write into it: an invalid slot counts as missing.
    return {decoded(name): int(slot) for name, slot in stored.items() if slot.isdigit() and len(slot) < 13}


def _version() -> str:
    # Random: after a FLUSHALL, a counter would reach the same number again.
    return os.urandom(8).hex()
