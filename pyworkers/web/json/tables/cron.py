"""The cron entries."""

from __future__ import annotations

from typing import Any

from pyworkers.api.cron import ACTIONS, ADD
from pyworkers.api.cronjob import CRON, CRON_VIEW, read_cron_job, read_cron_page
from pyworkers.api.parameters import paging
from pyworkers.api.schemas import page_of
from pyworkers.web.json.resources import Ask, Resource, found

_SLOTS = 10


async def _entries(ask: Ask) -> dict[str, Any]:
    first = ask.given["first"]
    page = await ask.site.read(read_cron_page(ask.keys, first, ask.given["count"]))
    return {"first": first, "total": page.total, "cron": [job.as_dict() for job in page.jobs]}


async def _entry(ask: Ask) -> dict[str, Any]:
    job = found(await ask.site.read(read_cron_job(ask.keys, ask.names["name"])), "cron entry")
    return {**job.as_dict(), "slots": job.next_slots(_SLOTS), "runs": [run.as_dict() for run in job.runs]}


RESOURCES = (
    Resource(
        "/cron",
        "The cron entries, by name.",
        _entries,
        page_of("CronEntries", "cron", CRON.schema),
        paging(),
        [ADD],
    ),
    Resource(
        "/cron/{name}",
        "One cron entry, with its next slots and its last runs.",
        _entry,
        CRON_VIEW,
        actions=ACTIONS,
    ),
)
