"""Plan: which queues this server works on, with how many workers each, and what it enqueues by the clock.

Pure: what the application declares and what the configuration says come in. Used by the master.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyworkers.config.fields import Config
from pyworkers.errors import ConfigError
from pyworkers.protocol.cron import CronEntry
from pyworkers.server.cron import entries_of

DEFAULT_CONCURRENCY = 5
"""Workers of a queue for which neither decorator nor configuration says a number (Sidekiq 7's default)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is to do, with the code that was loaded last."""

    manifest: Mapping[str, Any]
    queues: Mapping[str, int]
    """Number of workers by queue."""
    cron: list[CronEntry]


def plan(manifest: Mapping[str, Any], config: Config, only: Mapping[str, int | None]) -> Plan:
    """What to do. ``only`` are the queues of the command line; empty is all.

    Raises ConfigError when a queue is named that the application has no handler for, or for a bad cron entry.
    """
    return Plan(manifest, _queues(manifest["queues"], config, only), entries_of(manifest, config))


def _queues(declared: Mapping[str, Any], config: Config, only: Mapping[str, int | None]) -> dict[str, int]:
    if not declared:
        raise ConfigError(
            "the application declares no handler", hint="use @worker.job() or @worker.process()"
        )
    _check_known(config.queues, declared, "[queues.{}]")
    _check_known(only, declared, "--queue {}")
    return {name: _concurrency(name, declared[name], config, only) for name in only or declared}


def _concurrency(
    name: str, declared: Mapping[str, Any], config: Config, only: Mapping[str, int | None]
) -> int:
    configured = config.queues[name].concurrency if name in config.queues else None
    return only.get(name) or configured or declared.get("concurrency") or DEFAULT_CONCURRENCY


def _check_known(names: Iterable[str], declared: Mapping[str, Any], where: str) -> None:
    for name in names:
        if name not in declared:
            close = difflib.get_close_matches(name, declared, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(sorted(declared))}"
            raise ConfigError(
                f"the application has no handler for the queue {name!r}",
                hint=hint,
                location=where.format(name),
            )
