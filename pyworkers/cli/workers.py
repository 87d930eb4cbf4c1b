"""``pyworkers workers``: the jobs that run, and where. Reads only."""

from __future__ import annotations

import json
import time

import click

from pyworkers.api import ProcessSet, Work, WorkSet
from pyworkers.cli.listing import entry
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import duration, printable, table, valid

_HEADER = ("running", "jid", "queue", "class", "thread", "identity")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def workers(source: Source, as_json: bool) -> None:
    """Show the jobs that run, the longest first.

    pyworkers' servers say what they run at once; Sidekiq's with each beat, every 5 or 10 seconds.

    \b
    Example: pyworkers workers --json
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = sorted(WorkSet(config), key=lambda work: work.run_at)
    now = time.time()
    if as_json:
        click.echo(json.dumps([_entry(work) for work in found]))
    elif found:
        click.echo("\n".join(table(_HEADER, [row(work, now) for work in found])))
    else:
        click.echo("No jobs run, or they are too short to be seen.")


def row(work: Work, now: float) -> tuple[str, ...]:
    """The texts of the columns."""
    running = duration(max(0.0, now - work.run_at)) if work.run_at else ""
    names = (work.jid, work.queue, work.job_class, work.thread, work.identity)
    return running, *map(printable, names)


def _entry(work: Work) -> dict[str, object]:
    where = {"identity": valid(work.identity), "thread": valid(work.thread), "run_at": work.run_at}
    return where | entry(work)
