"""The limits over all servers, and the locks of unique jobs."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyworkers.api import LimitSet, Lock, LockSet
from pyworkers.api.limits import LIMIT_VIEW, LIMITS, read_limit, read_limit_page
from pyworkers.api.locks import LOCKS, read_lock_page
from pyworkers.api.parameters import Parameter
from pyworkers.web.json.resources import Ask, Change, Resource, found, still_there

_PAGING = (
    Parameter("cursor", "The cursor of the answer before.", "integer", 0, 0, 2**63),
    Parameter("count", "About how many.", "integer", 50, 1, 200),
)


async def _limits(ask: Ask) -> dict[str, Any]:
    page = await ask.site.read(read_limit_page(ask.keys, ask.given["cursor"], ask.given["count"]))
    limits = [limit.as_dict() for limit in page.limits]
    return {"cursor": page.cursor, "total": page.total, "limits": limits}


async def _limit(ask: Ask) -> dict[str, Any]:
    return found(await ask.site.read(read_limit(ask.keys, ask.names["key"])), "limit").as_dict()


async def _reset(ask: Ask) -> int:
    name = ask.names["key"]
    return await ask.perform("limit.reset", name, partial(LimitSet(ask.admin).reset, name))


async def _free(ask: Ask) -> int:
    key, member = ask.names["key"], ask.given["member"]
    freed = await ask.perform("limit.release", key, partial(LimitSet(ask.admin).release, key, member))
    return still_there(freed, "slot")


async def _locks(ask: Ask) -> dict[str, Any]:
    given = ask.given
    page = await ask.site.read(read_lock_page(ask.keys, given["cursor"], given["count"], given["text"] or ""))
    locks = [Lock(stored, ask.admin).as_dict() for stored in page.locks]
    return {"cursor": page.cursor, "scanned": page.scanned, "locks": locks}


async def _release(ask: Ask) -> int:
    key = ask.given["key"]
    held = await ask.site.act(lambda: [lock for lock in LockSet(ask.admin).find(key) if lock.key == key])
    still_there(bool(held), "lock")
    return still_there(await ask.perform("lock.release", key, held[0].release), "lock")


RESOURCES = (
    Resource("/limits", "The limits in use.", _limits, LIMITS, _PAGING),
    Resource(
        "/limits/{key}",
        "One limit, and who holds it.",
        _limit,
        LIMIT_VIEW,
        actions=[
            Change("reset", "Free all slots of the limit, and forget its starts.", _reset),
            Change(
                "release", "Free one slot.", _free, [Parameter("member", "That of a holder.", required=True)]
            ),
        ],
    ),
    Resource(
        "/locks",
        "The locks of unique jobs, in no order.",
        _locks,
        LOCKS,
        [*_PAGING, Parameter("text", "With this text in their key, or with this jid.")],
        [Change("release", "Release a lock.", _release, [Parameter("key", "Its key.", required=True)])],
    ),
)
