"""``pyworkers queues``: shows the queues.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import click

from pyworkers.api import Search, Stats
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.target import admin_of
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.text import printable

_COLUMNS = QUEUE.shown("name", "size", "latency_s", "rate_per_min", "in_progress", "state")


@click.command()
@json_option
@config_options
def queues(source: ConfigOptions, as_json: bool) -> None:
    """Show all queues: size, latency, rate, jobs in progress.

    size is the number of waiting jobs; latency the seconds that the next one has been waiting; jobs/min the
    jobs that ran on servers of pyworkers, over the last full minute and the current one. Jobs in progress
    are those of pyworkers, go-workers and go-workers2; --json lists their owners. For Sidekiq's
    running jobs, see `pyworkers workers`. A queue is unserved if no server that reports itself takes jobs
    from it (go-workers reports nothing).

    \b
    Example: pyworkers queues --json
    """
    admin = admin_of(source.redis())
    search = Search(admin.keys)
    stats = Stats.fetch(admin, search=search)
    found, now = stats.queues, stats.now
    if as_json:
        print_list(queue.as_dict(now) for queue in found)
    elif found:
        Form(now).show(_COLUMNS, found)
    else:
        click.echo("No queues: no job was ever enqueued, and no server is running.")
    if search.shortfall:
        click.echo(
            f"Jobs in progress in Go processes may be missing: {printable(search.shortfall)}", err=True
        )
