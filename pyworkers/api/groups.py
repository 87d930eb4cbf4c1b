"""GroupStats: a group of queues that share workers, with its sizes in all servers that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.schemas import COUNT, by_name
from pyworkers.config.groups import spell_queues
from pyworkers.store.processes.views import GroupView, ProcessView
from pyworkers.text import valid


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group at one time: its queues with their weights, and the sums over its servers.

    A ``strict`` group takes jobs from its queues in their order. ``concurrency`` jobs can run at a time, in
    this many ``processes``; ``busy`` run. Servers with other queues or another ``mode`` under the same name
    have another group.
    """

    name: str
    queues: Mapping[str, int]
    strict: bool
    mode: str
    servers: int
    processes: int
    concurrency: int
    busy: int
    workers: Mapping[str, int] = field(default_factory=dict)
    """The number of worker processes by state."""
    restarts: int = 0
    """The number of workers that ended unexpectedly, since the start of their server."""
    failing: str = ""
    """Why one of its servers has no worker and cannot start one; empty if there is none."""

    @classmethod
    def of(cls, views: Sequence[GroupView]) -> GroupStats:
        """The sums of the same group in several servers."""
        first = views[0]
        return cls(
            first.name,
            first.queues,
            first.strict,
            first.mode,
            len(views),
            sum(view.processes for view in views),
            sum(view.concurrency for view in views),
            sum(view.busy for view in views),
            sum((Counter(view.workers) for view in views), Counter()),
            sum(view.restarts for view in views),
            next((view.failing for view in views if view.failing), ""),
        )

    def as_dict(self) -> dict[str, Any]:
        """The group for JSON."""
        return GROUP.as_dict(self)


def _queues(group: GroupStats, _now: float) -> str:
    return spell_queues(tuple(group.queues) if group.strict else group.queues)


def _called(group: GroupStats, _now: float) -> str:
    return f"{group.name} (failing: {group.failing})" if group.failing else group.name


GROUP: Table[GroupStats] = Table(
    "Group",
    Column("group", title="Group", value=_called, only_shown=True, cut=2),
    Column("name"),
    Column(
        "queues", Kind.PARTS, schema=by_name(COUNT),
        value=lambda group, _now: {valid(queue): weight for queue, weight in group.queues.items()},
    ),
    Column("spelled", title="Queues", value=_queues, only_shown=True, cut=1),
    Column("strict", Kind.FLAG),
    Column("mode", title="Mode"),
    Column("servers", Kind.COUNT, "Servers"),
    Column("processes", Kind.COUNT, "Processes"),
    Column("concurrency", Kind.COUNT, "Of"),
    Column("busy", Kind.COUNT, "Busy"),
    Column("workers", Kind.PARTS, value=lambda group, _now: dict(group.workers), schema=by_name(COUNT)),
    Column("restarts", Kind.COUNT, "Restarts"),
    Column("failing", optional=True),
)  # fmt: skip


def by_state(counts: Mapping[str, int]) -> str:
    """Worker processes by state: ``3 busy, 1 idle``."""
    return ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))


def groups_of(servers: Iterable[ProcessView], now: float) -> list[GroupStats]:
    """The groups of the servers that have written a heartbeat in the last minute, by name."""
    same: dict[tuple[object, ...], list[GroupView]] = {}
    for server in servers:
        for group in server.groups if not server.silent(now) else ():
            key = (group.name, tuple(group.queues.items()), group.strict, group.mode)
            same.setdefault(key, []).append(group)
    return sorted((GroupStats.of(views) for views in same.values()), key=lambda group: group.name)
