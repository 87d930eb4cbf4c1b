"""CronSet: lists the cron entries of code, configuration and run time, and changes them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import SystemRandom
from typing import Any

from pyworkers.api.actions import AbsentError, Action, Given
from pyworkers.api.cronjob import CronJob, read_cron_job, read_cron_page
from pyworkers.api.parameters import Parameter
from pyworkers.api.target import Admin, AtRedis
from pyworkers.config.cron_entries import check_entry, dump, load
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import cron
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.envelope import new_jid
from pyworkers.store import cron as cron_store
from pyworkers.store.cron import StoredCron
from pyworkers.store.routes import push_by

_QUEUE = "default"
_UNKNOWN_HINT = "`pyworkers cron list` shows all; entries of code and configuration, while a server runs"


class CronSet(AtRedis):
    """All entries. Servers apply a change within about three seconds.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __iter__(self) -> Iterator[CronJob]:
        """Iterate by name. Entries of code and configuration are listed while a server with them runs."""
        return iter(self._admin.run(read_cron_page(self._admin.keys)).jobs)

    def find(self, name: str) -> CronJob | None:
        """The active or paused entry of that name; None if there is none."""
        return self._admin.run(read_cron_job(self._admin.keys, name))

    def add(
        self,
        name: str,
        schedule: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        queue: str = _QUEUE,
        timezone: str = "UTC",
        misfire: str = "once",
        grace: float = 300.0,
        retry: bool | int | None = None,
        options: Mapping[str, Any] | None = None,
        replace: bool = False,
    ) -> CronEntry:
        """Add an entry; its first slot is after now. Names and values are as in ``[[cron]]``.

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
            raise self._no_run_time_entry(name)
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
        if not self._admin.run(cron_store.remove(self._admin.keys, name)):
            job = self.find(name)
            if job is None:
                raise self._no_run_time_entry(name)
            hint = f"it is declared in the {job.origin}: remove it there, or pause it"
            raise BadArgumentError(f"{name!r} is not a run-time entry", hint=hint)

    def pause(self, name: str) -> bool:
        """Pause an entry, however it was declared; False if it was paused already."""
        self._require(name)
        return self._admin.run(cron_store.pause(self._admin.keys, name))

    def resume(self, name: str) -> bool:
        """Undo ``pause``; False if the entry was not paused. Slots missed during the pause do not fire."""
        return self._admin.run(cron_store.resume(self._admin.keys, name, time.time()))

    def trigger(self, name: str) -> str:
        """Enqueue the job of an entry now, also of a paused one. Returns its jid, or its duplicate's.

        The job's field ``cron`` holds ``triggered``, and this second as its slot. The next slots still fire.
        Raises QueueFullError and DuplicateJobError.
        """
        entry, now = self._require(name).entry, time.time()
        if entry.args and entry.options.get("encrypt"):
            hint = "only a server has its arguments: enqueue the job from the application"
            raise BadArgumentError(f"cron {name!r} is encrypted", hint=hint)
        jid = new_jid(SystemRandom())
        others = push_by(self._admin, [cron.job_of(entry, int(now), now, jid, triggered=True)])
        return others.get(jid, jid)

    def _read(self) -> StoredCron:
        return self._admin.run(cron_store.read(self._admin.keys))

    def _require(self, name: str) -> CronJob:
        job = self.find(name)
        if job is None:
            raise _no_such_entry(name, "no cron entry")
        return job

    def _no_run_time_entry(self, name: str) -> BadArgumentError:
        """The error for a name of no run-time entry, which code or configuration may declare."""
        what = "no run-time entry"
        if self.find(name) is None:
            return _no_such_entry(name, what)
        return BadArgumentError(f"there is {what} {name!r}", hint=_UNKNOWN_HINT)

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
        put = cron_store.put(self._admin.keys, entry.name, dump(entry), time.time(), exists=exists)
        if not self._admin.run(put):
            if exists:
                raise self._no_run_time_entry(entry.name)
            hint = "replace it (pyworkers cron add --replace), or choose another name"
            raise BadArgumentError(f"a cron entry {entry.name!r} exists already", hint=hint)


def _no_such_entry(name: str, what: str) -> AbsentError:
    return AbsentError("cron entry", f"there is {what} {name!r}", hint=_UNKNOWN_HINT)


def _resume(admin: Admin, name: str) -> bool:
    entries = CronSet(admin)
    resumed = entries.resume(name)
    if not resumed and entries.find(name) is None:
        raise _no_such_entry(name, "no cron entry")
    return resumed


def _queues(admin: Admin, given: Given) -> Iterable[str] | None:
    """The queue of an entry, and the one that it gets."""
    job = CronSet(admin).find(given["name"])
    if "schedule" in given and "job_class" in given and job is None:
        return [given.get("queue", _QUEUE)]
    return None if job is None else {job.entry.queue, given.get("queue", job.entry.queue)}


_NAME = Parameter("name", "Its name.", required=True)
_SCHEDULE = Parameter("schedule", "The five fields of cron.")
_CLASS = Parameter("job_class", "The class of its jobs.")
_OTHERS = (
    Parameter("queue", "Their queue."),
    Parameter("timezone", "The time zone of the schedule."),
    Parameter("misfire", "Which missed slots fire.", choices=cron.MISFIRES),
    Parameter("grace", "The seconds after which a missed slot is dropped.", "number", least=0),
)
ADD: Action[CronJob] = Action(
    "cron.add",
    "Add a run-time entry.",
    [_NAME, replace(_SCHEDULE, required=True), replace(_CLASS, required=True), *_OTHERS],
    lambda admin, **given: CronSet(admin).add(**given),
    queues=_queues,
    done="{name} is added",
)
PAUSE: Action[CronJob] = Action(
    "cron.pause",
    "Pause the entry.",
    [_NAME],
    lambda admin, name: CronSet(admin).pause(name),
    queues=_queues,
    done="{name} is paused",
    unchanged="{name} is paused already",
    offered=lambda job: not job.paused,
    command="""Pause an entry: it fires no more until resumed.

    \b
    Example: pyworkers cron pause nightly
    """,
)
RESUME: Action[CronJob] = Action(
    "cron.resume",
    "Undo a pause.",
    [_NAME],
    _resume,
    queues=_queues,
    done="{name} fires again",
    unchanged="{name} was not paused",
    offered=lambda job: job.paused,
    command="""Resume a paused entry; slots missed during the pause do not fire.

    \b
    Example: pyworkers cron resume nightly
    """,
)
TRIGGER: Action[CronJob] = Action(
    "cron.trigger",
    "Enqueue its job now.",
    [_NAME],
    lambda admin, name: CronSet(admin).trigger(name),
    queues=_queues,
    done="{name} is triggered: job {result}",
    label="Trigger now",
    returns="jid",
    command="""Enqueue the job of an entry now; print its id (jid).

    The slots of the entry fire as usual.

    \b
    Example: pyworkers cron trigger nightly
    """,
)
REMOVE: Action[CronJob] = Action(
    "cron.remove",
    "Remove a run-time entry.",
    [_NAME],
    lambda admin, name: CronSet(admin).remove(name),
    queues=_queues,
    done="{name} is removed",
    dangerous=True,
    offered=lambda job: job.origin == "run time",
    command="""Remove an entry that was added at run time.

    \b
    Example: pyworkers cron remove nightly
    """,
)
CHANGE: Action[CronJob] = Action(
    "cron.change",
    "Change fields of a run-time entry.",
    [_NAME, _SCHEDULE, _CLASS, *_OTHERS],
    lambda admin, name, **given: CronSet(admin).change(name, **given),
    queues=_queues,
    done="{name} is changed",
    offered=lambda _job: False,
)
ACTIONS = (PAUSE, RESUME, TRIGGER, REMOVE, CHANGE)
