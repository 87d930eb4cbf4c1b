"""``pyworkers processes`` and ``workers``: the live servers, Sidekiq's included, and running jobs.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import Process, ProcessSet, Work, WorkSet
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.output.rows import PROCESSES, WORKS, process_row, work_row
from pyworkers.cli.output.tables import Column, show
from pyworkers.cli.output.times import Times, utc_option

_PROCESSES = (*PROCESSES, Column("restarts", right=True), Column("lease"))
_WORKS = (*WORKS, Column("progress"), Column("memory", right=True))


@click.command()
@json_option
@utc_option
@config_options
def processes(source: Source, as_json: bool, times: Times) -> None:
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
        show(_PROCESSES, [(*process_row(process.about, now, times), *_more_of(process)) for process in found])
    else:
        click.echo("No servers: none has written a heartbeat in the last minute.")


@click.command()
@json_option
@utc_option
@config_options
def workers(source: Source, as_json: bool, times: Times) -> None:
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
        show(_WORKS, [(*work_row(work, now, times), *_progress(work)) for work in found])
    else:
        click.echo("No running jobs, or they end too soon to be seen.")


def _more_of(process: Process) -> tuple[str, str]:
    """Restarts and lease of a server of pyworkers; other programs' have neither."""
    restarts = sum(group.restarts for group in process.about.groups)
    lease = {True: "held", False: "lost", None: ""}[process.view.leased]
    return str(restarts) if process.about.groups else "", lease


def _progress(work: Work) -> tuple[str, str]:
    """Progress, as ``30/200``, and the memory of its worker."""
    progress, total = work.progress, ""
    if progress is not None and progress.total is not None:
        total = f"/{progress.total:g}"
    done = f"{progress.done:g}{total}" if progress is not None else ""
    return done, f"{work.rss_kb / 1024:.0f} MB" if work.rss_kb else ""
