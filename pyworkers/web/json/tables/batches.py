"""The batches."""

from __future__ import annotations

from typing import Any

from pyworkers.api.batches import (
    ACTIONS,
    BATCH,
    BATCH_VIEW,
    MEMBERS,
    read_batch,
    read_batch_page,
    read_members,
)
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.schemas import page_of
from pyworkers.web.json.resources import Ask, Resource, found

_STATES = ("waiting", "failed", "dead")


async def _batches(ask: Ask) -> dict[str, Any]:
    first = ask.given["first"]
    page = await ask.site.read(read_batch_page(ask.keys, first, ask.given["count"]))
    return {"first": first, "total": page.total, "batches": [about.as_dict() for about in page.batches]}


async def _batch(ask: Ask) -> dict[str, Any]:
    return found(await ask.site.read(read_batch(ask.keys, ask.names["id"])), "batch").as_dict()


async def _members(ask: Ask) -> dict[str, Any]:
    given = ask.given
    found(await ask.site.read(read_batch(ask.keys, ask.names["id"])), "batch")
    steps = read_members(ask.keys, ask.names["id"], given["state"], given["cursor"], given["count"])
    page = await ask.site.read(steps)
    return {"cursor": page.cursor, "members": [member._asdict() for member in page.members]}


RESOURCES = (
    Resource(
        "/batches",
        "The batches; those that changed last come first.",
        _batches,
        page_of("Batches", "batches", BATCH.schema),
        paging(),
    ),
    Resource(
        "/batches/{id}",
        "One batch, with its callbacks.",
        _batch,
        BATCH_VIEW,
        actions=ACTIONS,
    ),
    Resource(
        "/batches/{id}/members",
        "Members of a batch that are not done.",
        _members,
        MEMBERS,
        [
            Parameter("state", "In this state.", default="waiting", choices=_STATES),
            Parameter("cursor", "The cursor of the answer before.", "integer", 0, 0, 2**63),
            Parameter("count", "About how many.", "integer", 50, 1, 200),
        ],
    ),
)
