"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import click

from pyworkers.api import ProcessSet, ServerView, Work, WorkSet
from pyworkers.api.processes import PROCESS
from pyworkers.api.running import WORK
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option
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
    _PROCESSES.print_of(source.targets(), _servers, as_json, times)


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
    _WORKS.print_of(source.targets(), _works, as_json, times, attrgetter("run_at"))


def _servers(redis: RedisConfig) -> list[ServerView]:
    servers = ProcessSet(redis)
    servers.refresh()
    return [process.view for process in sorted(servers, key=attrgetter("identity"))]


def _works(redis: RedisConfig) -> Sequence[Work]:
    ProcessSet(redis).refresh()
    return WorkSet(redis).page().works
