"""CronSet: lists the cron entries of code, configuration and run time, and changes them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import Any

from pyworkers.api.cronjob import CronJob, read_cron_job, read_cron_page
from pyworkers.api.target import Where, admin_of
from pyworkers.config.cron_entries import check_entry, dump, load
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import cron
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.envelope import new_jid
from pyworkers.store import cron as cron_store
from pyworkers.store.cron import StoredCron
from pyworkers.store.producer import push_by

_UNKNOWN_HINT = "`pyworkers cron list` shows all; those of code and configuration, while a server runs"


class CronSet:
    """All entries. Servers apply a change within about three seconds.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._admin = admin_of(where, namespace)
        self._keys = self._admin.keys

    def __iter__(self) -> Iterator[CronJob]:
        """Iterate by name. Entries of code and configuration are listed while a server with them runs."""
        return iter(self._admin.run(read_cron_page(self._keys)).jobs)

    def find(self, name: str) -> CronJob | None:
        """The active or paused entry of that name; None if there is none."""
        return self._admin.run(read_cron_job(self._keys, name))

    def add(
        self,
        name: str,
        schedule: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        queue: str = "default",
        timezone: str = "UTC",
        misfire: str = "once",
        grace: float = 300.0,
        retry: bool | int | None = None,
        options: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> CronEntry:
        """Add an entry; its first slot is after now. Names and values are those of ``[[cron]]``.

        ``replace``: replace a run-time entry of that name. Raises BadArgumentError for an invalid value, with
        the rule, and for a name in use.
        """
        entry = CronEntry(
            name,
            schedule,
            queue,
            job_class,
            tuple(args),
            timezone,
            misfire,
            grace,
            retry,
            options or {},
            "run time",
        )
        self._put(entry, None if replace else False)
        return entry

    def change(self, name: str, **fields: Any) -> CronEntry:
        """Change fields of a run-time entry, by the names of ``add``. Raises BadArgumentError."""
        definition = self._read().added.get(name.encode())
        if definition is None:
            raise _no_such_entry(name, "no run-time entry")
        renamed = {{"grace": "grace_s"}.get(key, key): value for key, value in fields.items()}
        try:
            if "args" in renamed:
                renamed["args"] = tuple(renamed["args"])
            entry = replace(load(definition, "run time"), **renamed)
        except (TypeError, ValueError) as error:
            raise BadArgumentError(f"cron {name!r}: {error}") from error
        self._put(entry, True)
        return entry

    def remove(self, name: str) -> None:
        """Remove a run-time entry. Raises BadArgumentError if there is none."""
        if not self._admin.run(cron_store.remove(self._keys, name)):
            job = self.find(name)
            if job is None:
                raise _no_such_entry(name, "no run-time entry")
            hint = f"it is declared in the {job.origin}: remove it there, or pause it"
            raise BadArgumentError(f"{name!r} is not a run-time entry", hint=hint)

    def pause(self, name: str) -> bool:
        """Pause an entry, however it was declared; False if it was paused already."""
        self._require(name)
        return self._admin.run(cron_store.pause(self._keys, name))

    def resume(self, name: str) -> bool:
        """Undo ``pause``; False if the entry was not paused. Slots missed during the pause do not fire."""
        return self._admin.run(cron_store.resume(self._keys, name, time.time()))

    def trigger(self, name: str) -> str:
        """Enqueue the job of an entry now, also of a paused one. Returns its jid, or that of its duplicate.

        The job's field ``cron`` holds ``triggered``, and this second as its slot. The next slots still fire.
        Raises QueueFullError and DuplicateJobError.
        """
        entry, now = self._require(name).entry, time.time()
        if entry.args and entry.options.get("encrypt"):
            hint = "a server alone has its arguments: enqueue the job from the application"
            raise BadArgumentError(f"cron {name!r} is encrypted", hint=hint)
        jid = new_jid(SystemRandom())
        others = push_by(self._admin, [cron.job_of(entry, int(now), now, jid, triggered=True)])
        return others.get(jid, jid)

    def _read(self) -> StoredCron:
        return self._admin.run(cron_store.read(self._keys))

    def _require(self, name: str) -> CronJob:
        job = self.find(name)
        if job is None:
            raise _no_such_entry(name, "no cron entry")
        return job

    def _put(self, entry: CronEntry, exists: bool | None) -> None:
        """Write an entry; ``exists``: True if it must exist, False if it must not."""
        try:
            check_entry(entry)
        except (ValueError, TypeError) as error:
            raise BadArgumentError(f"cron {entry.name!r}: {error}") from error
        found = None if exists else self.find(entry.name)
        if found is not None and found.origin != "run time":
            hint = f"it is declared in the {found.origin}: choose another name"
            raise BadArgumentError(f"a cron entry {entry.name!r} exists already", hint=hint)
        put = cron_store.put(self._keys, entry.name, dump(entry), time.time(), exists=exists)
        if not self._admin.run(put):
            if exists:
                raise _no_such_entry(entry.name, "no run-time entry")
            hint = "replace it, or choose another name"
            raise BadArgumentError(f"a cron entry {entry.name!r} exists already", hint=hint)


def _no_such_entry(name: str, what: str) -> BadArgumentError:
    return BadArgumentError(f"there is {what} {name!r}", hint=_UNKNOWN_HINT)
