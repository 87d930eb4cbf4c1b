"""``pyworkers queues``: shows the queues.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

from dataclasses import replace
from operator import methodcaller

import click

from pyworkers.api import Search, Stats
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.target import admin_of
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.targets import Located, each
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig

_QUEUES = Records(
    QUEUE.shown("name", "size", "latency_s", "rate_per_min", "in_progress", "state"),
    "No queues: no job was ever enqueued, and no server is running.",
)


@click.command()
@json_option
@redis_options
def queues(source: ConfigOptions, as_json: bool) -> None:
    """Show all queues: size, latency, rate, jobs in progress.

    size is the number of waiting jobs; latency the seconds that the next one has been waiting; jobs/min the
    jobs that ran on servers of pyworkers, over the last full minute and the current one. Jobs in progress
    are counted for pyworkers, go-workers and go-workers2; --json lists their owners. For Sidekiq's
    running jobs, see `pyworkers workers`. A queue is unserved if no server with a heartbeat takes jobs from
    it (go-workers has none).

    \b
    Example: pyworkers queues --json
    """
    targets = source.targets()
    read = targets.gather(_read)
    now = max((one.item[0].now for one in read), default=0.0)
    found = each(Located(one.redis, one.item[0].queues) for one in read)
    replace(_QUEUES, as_dict=methodcaller("as_dict", now)).print(targets, found, as_json, Form(now))
    for one in read:
        if shortfall := one.item[1].shortfall:
            click.echo(f"Jobs in progress in Go processes may be missing: {printable(shortfall)}", err=True)


def _read(redis: RedisConfig) -> tuple[Stats, Search]:
    admin = admin_of(redis)
    search = Search(admin.keys)
    return Stats.fetch(admin, search=search), search
