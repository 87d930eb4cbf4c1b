"""LimitSet: the limits over all servers, with their use."""

from __future__ import annotations

from collections.abc import Iterator

from pyworkers.api.actions import Action
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import COUNT, MAYBE_TEXT, NUMBER, SCORE, TEXT, array, maybe, more, record
from pyworkers.api.target import AtRedis
from pyworkers.protocol.limits import LimitStats
from pyworkers.store.flow import limits, limituses
from pyworkers.store.flow.limituses import LimitHolder, LimitPage, LimitView, read_limit, read_limit_page
from pyworkers.text import exact_duration

__all__ = ["LimitHolder", "LimitPage", "LimitSet", "LimitView", "read_limit", "read_limit_page"]


def _allows(limit: LimitStats, _now: float) -> str:
    return f"{limit.most:,} in {exact_duration(limit.per_s)}" if limit.per_s else f"{limit.most:,} at once"


# LimitStats makes its own JSON: it has either a rate or a concurrency.
_LIMIT = record(
    "Limit",
    {"name": TEXT, "by": MAYBE_TEXT, "used": COUNT, "waiting": COUNT},
    {"rate": COUNT, "per": NUMBER, "concurrency": COUNT},
)
LIMIT: Table[LimitStats] = Table(
    "",
    Column("key", title="Limit", place="limits", empty="(empty name)", cut=1),
    Column("allows", title="Allows", value=_allows),
    Column(
        "share", Kind.BAR, "Use", value=lambda limit, _now: (limit.used, limit.most), live=True,
        about="Share of the limit in use",
    ),
    Column("used", Kind.COUNT, "In use", live=True),
    Column("waiting", Kind.COUNT, "Waiting", live=True),
)  # fmt: skip
HOLDER: Table[LimitHolder] = Table(
    "Holder",
    Column("member", about="Names the slot, for its release."),
    Column("identity", title="Server", place="servers"),
    Column("jid", title="JID", place="jobs", empty="unknown"),
    Column("since", Kind.MOMENT, "Since", schema=maybe(SCORE), live=True),
)
LIMITS = record("Limits", {"cursor": COUNT, "total": COUNT, "limits": array(_LIMIT)})
LIMIT_VIEW = more(_LIMIT, "LimitView", {"holders": array(HOLDER.schema)})


class LimitSet(AtRedis):
    """All limits that jobs have asked for, by key.

    All methods raise RedisUnavailableError and StoreError.
    """

    def __iter__(self) -> Iterator[LimitStats]:
        return iter(self._admin.run(limituses.uses(self._admin.keys)))

    def find(self, key: str) -> LimitView | None:
        """The limit with this key (``stripe``, ``tenant:7``), and who holds it; None if it is not in use."""
        return self._admin.run(read_limit(self._admin.keys, key))

    def release(self, key: str, member: str) -> bool:
        """Free the slot of one holder, by its ``member``. False if it is free already.

        The job that holds it continues, so that one job more than allowed may run for a while.
        """
        return self._admin.run(limituses.release(self._admin.keys, key, member))

    def reset(self, name: str) -> int:
        """Free all slots and forget all starts of a limit, and of each value of its ``by``.

        Returns the number of these; 0 if the limit is not in use. Jobs that hold a slot continue.
        """
        return self._admin.run(limits.reset(self._admin.keys, name))


RESET: Action[LimitStats] = Action(
    "limit.reset",
    "Free all slots of the limit, and forget its starts.",
    [Parameter("key", "The name of the limit.", required=True, argument="name")],
    lambda admin, key: LimitSet(admin).reset(key),
    done="{key} is reset",
    unchanged="{key} is not in use",
    missing="limit",
    conflict=False,
    dangerous=True,
    command="""Free all slots of the limit NAME, and forget its starts, with every value of its by=.

    Jobs that hold a slot continue, so more jobs than the limit allows may run for a while. The exit code is 1
    if the limit is not in use.

    \b
    Example: pyworkers limits reset stripe
    """,
)
RELEASE: Action[LimitHolder] = Action(
    "limit.release",
    "Free one slot.",
    [
        Parameter("key", "The key of the limit.", required=True),
        Parameter("member", "The member of the holder.", required=True),
    ],
    lambda admin, key, member: LimitSet(admin).release(key, member),
    done="A slot of {key} is free",
    unchanged="This slot of {key} is free already",
    missing="slot",
    target="{key} {member}",
    offered=lambda holder: bool(holder.member),
    command="""Free the slot of one holder of the limit KEY; MEMBER is the field "member" of show --json.

    The job that holds the slot continues. The exit code is 1 if the slot is free already.

    \b
    Example: pyworkers limits release erp 'web1:7:3f|b4a577edbccf1d805744efa9 j1'
    """,
)
ACTIONS = (RESET, RELEASE)
