"""Cron: the entries that fire by the clock, wherever they were declared, and how people change them."""

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
from pyworkers.protocol.envelope import encode, new_jid
from pyworkers.store.cron_admin import CronAdmin, Stored

_UNKNOWN_HINT = "`pyworkers cron list` shows all; those of code and configuration, while a server runs"


class CronJob:
    """One entry, as it was when it was read. ``last`` is its last slot, or since when it is known."""

    def __init__(self, entry: CronEntry, paused: bool, shadowed: bool, last: float | None) -> None:
        self.entry = entry
        self.paused = paused
        self.shadowed = shadowed
        """A run-time entry that does not fire, because the code or the configuration has its name, too."""
        self.last = last

    def __repr__(self) -> str:
        return f"CronJob({self.entry.name!r}, {self.entry.schedule!r})"

    @property
    def name(self) -> str:
        """What tells the entry from others."""
        return self.entry.name

    @property
    def origin(self) -> Origin:
        """Where it was declared."""
        return self.entry.origin

    @property
    def state(self) -> str:
        """``paused``, ``shadowed`` or ``active``."""
        return "paused" if self.paused else "shadowed" if self.shadowed else "active"

    def next_slots(self, count: int = 1, now: float | None = None) -> list[int]:
        """The next slots in epoch seconds, also of a paused entry."""
        start = time.time() if now is None else now
        return list(islice(cron.slots(self.entry, start, float("inf")), count))


class CronSet:
    """All entries. Every server follows a change within some three seconds.

    Everything raises RedisUnavailableError and StoreError.
    """

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        self._store = CronAdmin(admin_of(where, namespace))

    def __iter__(self) -> Iterator[CronJob]:
        """By name. Those of code and configuration are known while a server runs that has them."""
        return iter(_jobs(self._store.read()))

    def find(self, name: str) -> CronJob | None:
        """The entry of that name that fires, if there is one."""
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

        ``replace``: also if there is a run-time entry of that name. Raises BadArgumentError for a value that
        cannot be, with the rule, and for a name that another entry has.
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
        definition = self._store.read().added.get(name.encode())
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
        if not self._store.remove(name):
            job = self.find(name)
            if job is None:
                raise _no_such_entry(name, "no run-time entry")
            hint = f"it stands in the {job.origin}: remove it there, or pause it"
            raise BadArgumentError(f"{name!r} is no run-time entry", hint=hint)

    def pause(self, name: str) -> bool:
        """Let an entry fire no more, wherever it was declared; False if it was paused already."""
        self._require(name)
        return self._store.pause(name)

    def resume(self, name: str) -> bool:
        """Undo ``pause``; False if the entry was not paused. What came meanwhile is not made up for."""
        return self._store.resume(name, time.time())

    def trigger(self, name: str) -> str:
        """Enqueue the job of an entry now, also of a paused one. Returns its jid.

        The job's field ``cron`` says ``triggered``, and this second for its slot; no slot is used up.
        """
        entry, now = self._require(name).entry, time.time()
        jid = new_jid(SystemRandom())
        self._store.push(entry.queue, cron.envelope_of(entry, int(now), now, jid, triggered=True), jid)
        return jid

    def _require(self, name: str) -> CronJob:
        job = self.find(name)
        if job is None:
            raise _no_such_entry(name, "no cron entry")
        return job

    def _put(self, entry: CronEntry, exists: bool | None) -> None:
        """Write it; ``exists``: whether there must be one already."""
        try:
            check_entry(entry)
        except (ValueError, TypeError) as error:
            raise BadArgumentError(f"cron {entry.name!r}: {error}") from error
        found = None if exists else self.find(entry.name)
        if found is not None and found.origin != "run time":
            hint = f"it stands in the {found.origin}: take another name"
            raise BadArgumentError(f"there is a cron entry {entry.name!r}", hint=hint)
        if not self._store.put(entry.name, dump(entry), time.time(), exists=exists):
            if exists:
                raise _no_such_entry(entry.name, "no run-time entry")
            hint = "replace it, or take another name"
            raise BadArgumentError(f"there is a cron entry {entry.name!r}", hint=hint)


def _no_such_entry(name: str, what: str) -> BadArgumentError:
    return BadArgumentError(f"there is {what} {name!r}", hint=_UNKNOWN_HINT)


def _jobs(stored: Stored) -> list[CronJob]:
    declared = {entry.name: entry for text in stored.declared for entry in _declared(text)}
    entries = list(declared.values())
    for definition in stored.added.values():
        try:
            entries.append(load(definition, "run time"))
        except ValueError:  # somebody else's writing; the servers log it
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
