"""Views: one process, its groups, and its running jobs, as values.

Used by ``api`` and by the parts of ``store`` that read them. Descriptions are written by several programs, so
any field may be empty or 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyworkers.protocol import flow
from pyworkers.store.values import as_int

# Heartbeats come every 5 to 15 s; after this time Sidekiq's own descriptions expire (protocol.md, Servers).
_SILENT_S = 60.0


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of a pyworkers server: queues that share workers, each with its weight.

    ``concurrency`` is the number of jobs that can run at a time, ``busy`` the number of jobs that run;
    ``workers`` is the number of worker processes by state, ``restarts`` the number of workers that ended
    unexpectedly. ``failing`` is why the group has no worker and cannot start one; else empty.
    """

    name: str
    queues: Mapping[str, int]
    strict: bool
    mode: str
    processes: int
    concurrency: int
    busy: int
    ordered: bool = False
    workers: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    failing: str = ""


@dataclass(frozen=True, slots=True)
class ProcessView:
    """One process. ``beat`` and ``started_at`` are in epoch seconds, ``rss_kb`` in KiB, ``rtt_us`` in µs."""

    identity: str
    hostname: str
    pid: int
    tag: str
    version: str
    started_at: float
    beat: float
    busy: int
    concurrency: int
    rss_kb: int
    rtt_us: int
    quiet: bool
    embedded: bool
    queues: tuple[str, ...]
    labels: tuple[str, ...]
    info: Mapping[str, Any] = field(repr=False)
    look: int | None = field(default=None, repr=False)
    """The number of the last ``watch`` that the server has answered; None for other programs' servers."""
    lists: tuple[tuple[str, str], ...] = ()
    """Queue and in-progress list (without ``queue:``) of each worker, from go-workers2's heartbeat."""
    groups: tuple[GroupView, ...] = ()
    """Empty for other programs' servers."""
    stops_at: float | None = None
    """The end of a stop that has begun, in epoch seconds; None for other programs' servers."""

    @property
    def flow(self) -> int:
        """The version of the effects of jobs that the server knows (protocol/flow), 0 for none."""
        return as_int(self.info.get("flow"))

    @property
    def reloads(self) -> bool:
        """True for a server that understands ``RELOAD``."""
        return self.look is not None and self.info.get("reloads") is True

    @property
    def is_older(self) -> bool:
        """True for a pyworkers server that knows fewer effects of jobs than this version."""
        return self.look is not None and self.flow < flow.VERSION

    @property
    def failing(self) -> str:
        """The groups that have no worker and cannot start one, each with the reason; else empty."""
        return "; ".join(f"{group.name}: {group.failing}" for group in self.groups if group.failing)

    def silent(self, now: float) -> bool:
        """True without a heartbeat for a minute: go-workers2's descriptions remain after an exit."""
        return now - self.beat > _SILENT_S

    def state(self, now: float) -> str:
        """``silent``, ``stopping``, ``quiet``, ``failing``, ``older`` or ``running``.

        Other programs' servers, and servers of pyworkers 0.1.0, are ``quiet`` while they stop.
        """
        if self.silent(now):
            return "silent"
        if self.quiet:
            return "quiet" if self.stops_at is None else "stopping"
        if self.failing:
            return "failing"
        return "older" if self.is_older else "running"

    def takes(self, now: float) -> bool:
        """True if it takes jobs from its queues: it is neither quiet nor silent."""
        return not self.quiet and not self.silent(now)


@dataclass(frozen=True, slots=True)
class WorkView:
    """One running job; ``run_at`` is its start in epoch seconds."""

    identity: str
    thread: str
    queue: str
    run_at: float
    payload: bytes
    limit_at: float | None = None
    """The end of its time limit in epoch seconds; None if unknown."""
