"""CronSet: lists the cron entries of code, configuration and run time, and changes them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from random import SystemRandom
from typing import Any

import simplejson

from pyworkers.api.target import Where, admin_of
from pyworkers.config.cron_entries import check_entry, dump, load
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import cron
from pyworkers.protocol.cron import CronEntry, Origin
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.envelope import encode, new_jid
from pyworkers.store import cron as cron_store
from pyworkers.store.cron import Stored

_UNKNOWN_HINT = "`pyworkers cron list` shows all; those of code and configuration, while a server runs"


class CronJob:
    """One entry, as read. ``last`` is its last slot, or the time since which it is known."""

    def __init__(self, entry: CronEntry, paused: bool, shadowed: bool, last: float | None) -> None:
        self.entry = entry
        self.paused = paused
        self.shadowed = shadowed
        """True for a run-time entry that does not fire: code or configuration declares one of its name."""
        self.last = last

    def __repr__(self) -> str:
        return f"CronJob({self.entry.name!r}, {self.entry.schedule!r})"

    @property
    def name(self) -> str:
        """The unique name of the entry."""
        return self.entry.name

    @property
    def origin(self) -> Origin:
        """Where the entry is declared: code, configuration or run time."""
        return self.entry.origin

    @property
    def state(self) -> str:
        """``paused``, ``shadowed`` or ``active``."""
        return "paused" if self.paused else "shadowed" if self.shadowed else "active"

    def next_slots(self, count: int = 1, now: float | None = None) -> list[int]:
        """The next slots in epoch seconds, also of a paused entry."""
        start = time.time() if now is None else now
        return list(islice(cron.slots(self.entry, start, float("inf")), count))

    def as_dict(self, now: float | None = None) -> dict[str, Any]:
        """The entry for JSON; ``last`` and ``next`` are slots in epoch seconds, or None."""
        entry = self.entry
        return {
            "name": entry.name,
            "schedule": entry.schedule,
            "timezone": entry.timezone,
            "class": entry.job_class,
            "args": list(entry.args),
            "queue": entry.queue,
            "misfire": entry.misfire,
            "grace": entry.grace_s,
            "retry": entry.retry,
            "origin": entry.origin,
            "state": self.state,
            "last": self.last,
            "next": self.next_slots(1, now)[0] if self.state == "active" else None,
        }


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
        return iter(_jobs(self._read()))

    def find(self, name: str) -> CronJob | None:
        """The active or paused entry of that name; None if there is none."""
        found = [job for job in self if job.name == name]
        return next((job for job in found if not job.shadowed), None)

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
        """Enqueue the job of an entry now, also of a paused one. Returns its jid.

        The job's field ``cron`` holds ``triggered``, and this second as its slot. The next slots still fire.
        """
        entry, now = self._require(name).entry, time.time()
        jid = new_jid(SystemRandom())
        payload = cron.envelope_of(entry, int(now), now, jid, triggered=True)
        self._admin.push([PushedJob(entry.queue, payload, jid, None)])
        return jid

    def _read(self) -> Stored:
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


def _jobs(stored: Stored) -> list[CronJob]:
    declared = {entry.name: entry for text in stored.declared for entry in _declared(text)}
    entries = list(declared.values())
    for definition in stored.added.values():
        try:
            entries.append(load(definition, "run time"))
        except ValueError:  # written by another program; the servers log it
            continue
    entries.sort(key=lambda entry: (entry.name, entry.origin))
    return [_job(entry, stored, declared) for entry in entries]


def _job(entry: CronEntry, stored: Stored, declared: Mapping[str, CronEntry]) -> CronJob:
    name = entry.name.encode()
    last = stored.last.get(name)
    shadowed = entry.origin == "run time" and entry.name in declared
    return CronJob(entry, name in stored.paused, shadowed, None if last is None else float(last))


def _declared(text: bytes) -> Iterator[CronEntry]:
    for row in simplejson.loads(text):
        try:
            origin = row.pop("origin")
            yield load(encode(row).encode(), origin)
        except (ValueError, LookupError):  # of a server of another version
            continue
