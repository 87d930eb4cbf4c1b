"""Cron admin: changes cron entries while servers run, each change one transaction.

Used by ``api``, in the command line and in users' programs; never by the server. It moves opaque bytes, and
never decides what an entry means.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from pyworkers.protocol.draft import PushedJob
from pyworkers.store import scripts
from pyworkers.store.admin import Admin
from pyworkers.store.producer import push
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import errors_translated


@dataclass(frozen=True, slots=True)
class Stored:
    """All that Redis holds: definitions of the run-time entries by name, lists of entries that servers have
    declared, names of paused entries, and the moment up to which each entry's slots are dealt with.
    """

    added: Mapping[bytes, bytes]
    declared: list[bytes]
    paused: set[bytes]
    last: Mapping[bytes, bytes]


class CronAdmin:
    """The operations of one namespace. All raise RedisUnavailableError and StoreError."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._keys = admin.keys

    def read(self) -> Stored:
        """What there is now."""
        keys = self._keys
        commands = [("HGETALL", keys.cron_entries), ("SMEMBERS", keys.cron_paused)]
        commands += [("HGETALL", keys.cron_last), ("HKEYS", keys.owners)]
        added, paused, last, owners = self._admin.run_all(commands)
        names = [keys.cron_declared(owner.decode(errors="surrogateescape")) for owner in owners]
        lists = self._admin.run("MGET", *names) if names else []
        return Stored(added, [found for found in lists if found is not None], set(paused), last)

    def put(self, name: str, definition: bytes, now: float, *, exists: bool | None) -> bool:
        """Write a run-time entry, which must ``exist`` already or must not; False if that is not so."""
        keys = self._keys
        names = [keys.cron_entries, keys.cron_last, keys.cron_version]
        return self._run(
            "cron_put", names, name, definition, int(now), _version(), "" if exists is None else int(exists)
        )

    def remove(self, name: str) -> bool:
        """Remove a run-time entry; False if there is none."""
        keys = self._keys
        names = [keys.cron_entries, keys.cron_last, keys.cron_version, keys.cron_paused]
        return self._run("cron_remove", names, name, _version())

    def pause(self, name: str) -> bool:
        """Pause an entry; False if it was paused already."""
        commands = [("SADD", self._keys.cron_paused, name), ("SET", self._keys.cron_version, _version())]
        return bool(self._admin.run_all(commands, at_once=True)[0])

    def resume(self, name: str, now: float) -> bool:
        """Undo ``pause``; False if the entry was not paused."""
        keys = self._keys
        names = [keys.cron_paused, keys.cron_last, keys.cron_version]
        return self._run("cron_resume", names, name, int(now), _version())

    def push(self, queue: str, payload: bytes, jid: str) -> None:
        """Enqueue the job of an entry."""
        with closing(Wires(self._admin.redis)) as wires:
            push(wires, self._keys, [PushedJob(queue, payload, jid, None)])

    def _run(self, script: str, names: list[str], *args: str | bytes | int) -> bool:
        with errors_translated():
            return bool(scripts.load(script).call(self._admin.redis, names, args))


def _version() -> str:
    # At random: after a FLUSHALL, a counter would come by the same number again.
    return os.urandom(8).hex()
