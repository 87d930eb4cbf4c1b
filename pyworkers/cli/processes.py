"""``pyworkers processes``: the servers that are alive, Sidekiq's included. Reads only."""

from __future__ import annotations

import json
import time

import click

from pyworkers.api import Process, ProcessSet
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import duration, printable, table, valid
from pyworkers.store.processes import ProcessView

_HEADER = ("identity", "up", "busy", "of", "memory", "beat", "state", "queues")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def processes(source: Source, as_json: bool) -> None:
    """Show the servers: what they serve, how busy they are.

    beat is how long ago a server wrote these numbers: pyworkers' just now, Sidekiq's every 5 or 10 seconds.

    \b
    Example: pyworkers processes --json
    """
    servers = ProcessSet(source.redis())
    servers.refresh()
    found = sorted(servers, key=lambda process: process.identity)
    now = time.time()
    if as_json:
        click.echo(json.dumps([_entry(process) for process in found]))
    elif found:
        click.echo("\n".join(table(_HEADER, [row(process.about, now) for process in found], right=(2, 3, 4))))
    else:
        click.echo("No servers: none has been heard of in the last minute.")


def row(about: ProcessView, now: float) -> tuple[str, ...]:
    """The texts of the columns."""
    return (
        printable(about.identity),
        duration(now - about.started_at) if about.started_at else "",
        str(about.busy),
        str(about.concurrency),
        f"{about.rss_kb / 1024:.0f} MB" if about.rss_kb else "",
        duration(max(0.0, now - about.beat)) if about.beat else "",
        state(about, now),
        printable(", ".join(about.queues)),
    )


def state(about: ProcessView, now: float) -> str:
    """What is special about a server; empty if nothing is."""
    if about.silent(now):
        return "silent"
    return "quiet" if about.quiet else ""


def _entry(process: Process) -> dict[str, object]:
    about = process.about
    return {
        "identity": valid(about.identity),
        "hostname": about.hostname,
        "pid": about.pid,
        "tag": about.tag,
        "version": about.version,
        "started_at": about.started_at,
        "beat": about.beat,
        "busy": about.busy,
        "concurrency": about.concurrency,
        "rss_kb": about.rss_kb,
        "rtt_us": about.rtt_us,
        "quiet": about.quiet,
        "embedded": about.embedded,
        "queues": about.queues,
        "labels": about.labels,
    }
