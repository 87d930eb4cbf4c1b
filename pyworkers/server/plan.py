"""Plan: the groups of queues that this server serves, and the cron entries.

Pure: computed from the manifest of the application and from the configuration. Used by the master.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from pyworkers.config.fields import Config
from pyworkers.errors import ConfigError
from pyworkers.ipc.control import Manifest, QueueFacts
from pyworkers.protocol.cron import CronEntry
from pyworkers.server.cron import entries_of

DEFAULT_CONCURRENCY = 5
"""Workers of a queue whose concurrency neither decorator nor configuration sets (Sidekiq 7's default)."""


@dataclass(frozen=True, slots=True)
class Group:
    """The queues that one manager serves with one pool; a queue is in one group at most."""

    name: str
    queues: Mapping[str, int]
    """The weight of each queue, in the order of the declaration."""
    strict: bool
    """True if jobs are fetched from the queues in their order; False if by weight."""
    concurrency: int
    """The number of jobs that run at once."""
    processes: int
    mode: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of a server, by the code that was loaded last."""

    manifest: Manifest
    groups: Mapping[str, Group]
    """By name. A queue that stands in no declared group is a group of its own, named like it."""
    cron: list[CronEntry]

    @property
    def queues(self) -> list[str]:
        """The queues of all groups."""
        return [queue for group in self.groups.values() for queue in group.queues]


NOTHING = Plan({"queues": {}, "jobs": {}, "handlers": [], "cron": [], "hooks": {}}, {}, [])
"""The plan until an application is loaded."""


def plan(manifest: Manifest, config: Config, only: Mapping[str, int | None]) -> Plan:
    """The plan for an application. ``only`` are the queues of the command line; empty means all.

    Raises ConfigError for a queue without a handler, and for an invalid cron entry.
    """
    return Plan(manifest, _groups(manifest["queues"], config, only), entries_of(manifest, config))


def _groups(
    declared: Mapping[str, QueueFacts], config: Config, only: Mapping[str, int | None]
) -> dict[str, Group]:
    if not declared:
        raise ConfigError(
            "the application declares no handler", hint="use @worker.job() or @worker.process()"
        )
    _check_known(config.queues, declared, "[queues.{}]")
    _check_known(only, declared, "--queue {}")
    return {
        name: _own_group(name, _concurrency(name, declared[name], config, only)) for name in only or declared
    }


def _own_group(queue: str, concurrency: int) -> Group:
    """The group of a queue that stands in no declared group."""
    return Group(
        queue, {queue: 1}, strict=True, concurrency=concurrency, processes=concurrency, mode="process"
    )


def _concurrency(name: str, declared: QueueFacts, config: Config, only: Mapping[str, int | None]) -> int:
    configured = config.queues[name].concurrency if name in config.queues else None
    return only.get(name) or configured or declared["concurrency"] or DEFAULT_CONCURRENCY


def _check_known(names: Iterable[str], declared: Collection[str], where: str) -> None:
    for name in names:
        if name not in declared:
            close = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(sorted(declared))}"
            raise ConfigError(
                f"the application has no handler for the queue {name!r}",
                hint=hint,
                location=where.format(name),
            )
