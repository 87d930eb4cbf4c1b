"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from pyworkers.api import Process, ProcessSet, Work, WorkSet
from pyworkers.api.processes import PROCESS
from pyworkers.api.running import WORK
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import Located, each
from pyworkers.config.fields import RedisConfig

_PROCESSES = Records(
    PROCESS.shown(
        "identity", "started_at", "busy", "concurrency", "rss_kb", "beat", "state", "takes",
        "restarted", "lease",
    ),
    "No servers: none has written a heartbeat in the last minute.",
    PROCESS.as_dict,
)  # fmt: skip
_WORKS = Records(
    WORK.shown("run_at", "jid", "queue", "class", "thread", "identity", "done", "rss_kb"),
    "No running jobs, or they end too soon to be seen.",
)


@click.command()
@json_option
@utc_option
@redis_options
def processes(source: ConfigOptions, as_json: bool, times: Times) -> None:
    """Show all servers: their queues and running jobs.

    beat is the time of these numbers: pyworkers servers write them on request, Sidekiq every 5 or 10 seconds.

    \b
    Example: pyworkers processes --json
    """
    targets = source.targets()
    found = [Located(one.redis, one.item.view) for one in each(targets.gather(_servers))]
    _PROCESSES.print(targets, found, as_json, Form(time.time(), times))


@click.command()
@json_option
@utc_option
@redis_options
def workers(source: ConfigOptions, as_json: bool, times: Times) -> None:
    """Show running jobs, the longest first.

    pyworkers servers report their jobs on request; Sidekiq reports them every 5 or 10 seconds.

    \b
    Example: pyworkers workers --json
    """
    targets = source.targets()
    found = each(targets.gather(_works))
    if targets.several:
        found.sort(key=lambda one: one.item.run_at)
    _WORKS.print(targets, found, as_json, Form(time.time(), times))


def _servers(redis: RedisConfig) -> list[Process]:
    servers = ProcessSet(redis)
    servers.refresh()
    return sorted(servers, key=lambda process: process.identity)


def _works(redis: RedisConfig) -> Sequence[Work]:
    ProcessSet(redis).refresh()
    return WorkSet(redis).page().works
