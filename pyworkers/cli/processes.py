"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import json
import time

import click

from pyworkers.api import ProcessSet, WorkSet
from pyworkers.cli.listing import process_row, work_row
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import table

_SERVERS = ("identity", "up", "busy", "of", "memory", "beat", "state", "queues")
_JOBS = ("running", "jid", "queue", "class", "thread", "identity")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def processes(source: Source, as_json: bool) -> None:
    """Show all servers: their queues and running jobs.

    beat is the age of these numbers: pyworkers servers write them on request, Sidekiq every 5 or 10 seconds.

    \b
    Example: pyworkers processes --json
    """
    servers = ProcessSet(source.redis())
    servers.refresh()
    found = sorted(servers, key=lambda process: process.identity)
    now = time.time()
    if as_json:
        click.echo(json.dumps([process.as_dict() for process in found]))
    elif found:
        click.echo(
            "\n".join(
                table(_SERVERS, [process_row(process.about, now) for process in found], right=(2, 3, 4))
            )
        )
    else:
        click.echo("No servers: none has written a heartbeat in the last minute.")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def workers(source: Source, as_json: bool) -> None:
    """Show running jobs, the longest first.

    pyworkers servers report their jobs on request; Sidekiq reports them every 5 or 10 seconds.

    \b
    Example: pyworkers workers --json
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = sorted(WorkSet(config), key=lambda work: work.run_at)
    now = time.time()
    if as_json:
        click.echo(json.dumps([work.as_dict() for work in found]))
    elif found:
        click.echo("\n".join(table(_JOBS, [work_row(work, now) for work in found])))
    else:
        click.echo("No running jobs, or they end too soon to be seen.")
