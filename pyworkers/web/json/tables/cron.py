"""The cron entries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyworkers.api import CronSet
from pyworkers.api.cronjob import CRON, CRON_VIEW, read_cron_job, read_cron_page
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.schemas import page_of
from pyworkers.web.json.resources import Ask, Change, Resource, found

_NEW = (
    Parameter("name", "Its name.", required=True),
    Parameter("schedule", "The five fields of cron.", required=True),
    Parameter("job_class", "The class of its jobs.", required=True),
)
_FIELDS = (
    Parameter("schedule", "The five fields of cron."),
    Parameter("job_class", "The class of its jobs."),
    Parameter("queue", "Their queue."),
    Parameter("timezone", "The time zone of the schedule."),
    Parameter("misfire", "Which missed slots fire.", choices=("skip", "once", "all")),
    Parameter("grace", "The seconds for which a slot is not missed.", "number", least=0),
)
_SLOTS = 10


async def _entries(ask: Ask) -> dict[str, Any]:
    first = ask.given["first"]
    page = await ask.site.read(read_cron_page(ask.keys, first, ask.given["count"]))
    return {"first": first, "total": page.total, "cron": [job.as_dict() for job in page.jobs]}


async def _entry(ask: Ask) -> dict[str, Any]:
    job = found(await ask.site.read(read_cron_job(ask.keys, ask.names["name"])), "cron entry")
    return {**job.as_dict(), "slots": job.next_slots(_SLOTS), "runs": [run.as_dict() for run in job.runs]}


async def _add(ask: Ask) -> int:
    fields = {name: value for name, value in ask.given.items() if value is not None}
    await ask.perform("cron.add", ask.given["name"], partial(CronSet(ask.admin).add, **fields))
    return 1


async def _change(action: str, change: Callable[[CronSet, Ask], object], ask: Ask) -> int:
    name = ask.names["name"]
    found(await ask.site.read(read_cron_job(ask.keys, name)), "cron entry")
    changed = await ask.perform(f"cron.{action}", name, lambda: change(CronSet(ask.admin), ask))
    return 0 if changed is False else 1


def _edit(entries: CronSet, ask: Ask) -> object:
    fields = {name: value for name, value in ask.given.items() if value is not None}
    return entries.change(ask.names["name"], **fields)


def _action(name: str, about: str, change: Callable[[CronSet, Ask], object], *fields: Parameter) -> Change:
    return Change(name, about, partial(_change, name, change), fields)


RESOURCES = (
    Resource(
        "/cron",
        "The cron entries, by name.",
        _entries,
        page_of("CronEntries", "cron", CRON.schema),
        paging(),
        [Change("add", "Add a run-time entry.", _add, [*_NEW, *_FIELDS[2:]])],
    ),
    Resource(
        "/cron/{name}",
        "One cron entry, with its next slots and its last runs.",
        _entry,
        CRON_VIEW,
        actions=[
            _action("pause", "Pause the entry.", lambda entries, ask: entries.pause(ask.names["name"])),
            _action("resume", "Undo a pause.", lambda entries, ask: entries.resume(ask.names["name"])),
            _action(
                "trigger", "Enqueue its job now.", lambda entries, ask: entries.trigger(ask.names["name"])
            ),
            _action(
                "remove", "Remove a run-time entry.", lambda entries, ask: entries.remove(ask.names["name"])
            ),
            _action("change", "Change fields of a run-time entry.", _edit, *_FIELDS),
        ],
    ),
)
