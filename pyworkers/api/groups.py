"""GroupStats: a group of queues that share workers, with its sizes in all servers that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyworkers.api.record import valid
from pyworkers.store.processes.views import GroupView, ProcessView


@dataclass(frozen=True, slots=True)
class GroupStats:
    """One group at one time: its queues with their weights, and the sums over its servers.

    A ``strict`` group takes jobs from its queues in their order. ``concurrency`` jobs can run at a time, in
    so many ``processes``; ``busy`` run. Servers with other queues or another ``mode`` under the same name
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
        return {
            "name": valid(self.name),
            "queues": {valid(queue): weight for queue, weight in self.queues.items()},
            "strict": self.strict,
            "mode": self.mode,
            "servers": self.servers,
            "processes": self.processes,
            "concurrency": self.concurrency,
            "busy": self.busy,
            "workers": dict(self.workers),
            "restarts": self.restarts,
            **({"failing": valid(self.failing)} if self.failing else {}),
        }


def groups_of(servers: Iterable[ProcessView], now: float) -> list[GroupStats]:
    """The groups of the servers that have written a heartbeat in the last minute, by name."""
    same: dict[tuple[object, ...], list[GroupView]] = {}
    for server in servers:
        for group in server.groups if not server.silent(now) else ():
            key = (group.name, tuple(group.queues.items()), group.strict, group.mode)
            same.setdefault(key, []).append(group)
    return sorted((GroupStats.of(views) for views in same.values()), key=lambda group: group.name)
