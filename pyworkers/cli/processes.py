"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import ProcessSet, WorkSet
from pyworkers.api.processes import PROCESS
from pyworkers.api.running import WORK
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.output.times import Times, utc_option

_PROCESSES = PROCESS.shown(
    "identity", "started_at", "busy", "concurrency", "rss_kb", "beat", "state", "takes",
    "restarted", "lease",
)  # fmt: skip
_WORKS = WORK.shown("run_at", "jid", "queue", "class", "thread", "identity", "done", "rss_kb")


@click.command()
@json_option
@utc_option
@config_options
def processes(source: ConfigOptions, as_json: bool, times: Times) -> None:
    """Show all servers: their queues and running jobs.

    beat is the time of these numbers: pyworkers servers write them on request, Sidekiq every 5 or 10 seconds.

    \b
    Example: pyworkers processes --json
    """
    servers = ProcessSet(source.redis())
    servers.refresh()
    found = sorted(servers, key=lambda process: process.identity)
    now = time.time()
    if as_json:
        print_list(process.as_dict() for process in found)
    elif found:
        Form(now, times).show(_PROCESSES, [process.view for process in found])
    else:
        click.echo("No servers: none has written a heartbeat in the last minute.")


@click.command()
@json_option
@utc_option
@config_options
def workers(source: ConfigOptions, as_json: bool, times: Times) -> None:
    """Show running jobs, the longest first.

    pyworkers servers report their jobs on request; Sidekiq reports them every 5 or 10 seconds.

    \b
    Example: pyworkers workers --json
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = WorkSet(config).page().works
    now = time.time()
    if as_json:
        print_list(work.as_dict() for work in found)
    elif found:
        Form(now, times).show(_WORKS, found)
    else:
        click.echo("No running jobs, or they end too soon to be seen.")
