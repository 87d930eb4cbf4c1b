"""The limits over all servers, and the locks of unique jobs."""

from __future__ import annotations

from typing import Any

from pyworkers.api import Lock, limits, locks
from pyworkers.api.limits import LIMIT_VIEW, LIMITS, read_limit, read_limit_page
from pyworkers.api.locks import LOCKS, read_lock_page
from pyworkers.api.parameters import Parameter
from pyworkers.web.json.resources import Ask, Resource, found

_PAGING = (
    Parameter("cursor", "The cursor of the answer before.", "integer", 0, 0, 2**63),
    Parameter("count", "About how many.", "integer", 50, 1, 200),
)


async def _limits(ask: Ask) -> dict[str, Any]:
    page = await ask.site.read(read_limit_page(ask.keys, ask.given["cursor"], ask.given["count"]))
    rows = [limit.as_dict() for limit in page.limits]
    return {"cursor": page.cursor, "total": page.total, "limits": rows}


async def _limit(ask: Ask) -> dict[str, Any]:
    return found(await ask.site.read(read_limit(ask.keys, ask.names["key"])), "limit").as_dict()


async def _locks(ask: Ask) -> dict[str, Any]:
    given = ask.given
    page = await ask.site.read(read_lock_page(ask.keys, given["cursor"], given["count"], given["text"] or ""))
    rows = [Lock(stored, ask.admin).as_dict() for stored in page.locks]
    return {"cursor": page.cursor, "scanned": page.scanned, "locks": rows}


RESOURCES = (
    Resource("/limits", "The limits in use.", _limits, LIMITS, _PAGING),
    Resource(
        "/limits/{key}",
        "One limit, and who holds it.",
        _limit,
        LIMIT_VIEW,
        actions=limits.ACTIONS,
    ),
    Resource(
        "/locks",
        "The locks of unique jobs, in no order.",
        _locks,
        LOCKS,
        [*_PAGING, Parameter("text", "With this text in their key, or with this jid.")],
        locks.ACTIONS,
    ),
)
