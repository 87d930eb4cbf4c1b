"""``pyworkers stats``: the number of jobs in each state.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import json
from typing import Any

import click

from pyworkers.api import ProcessSet, Stats
from pyworkers.cli.listing import group_row
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable, table

_GROUPS = ("group", "mode", "servers", "processes", "busy", "of", "queues")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option(
    "--history",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, 5 * 365),
    help="Also show the counts of each of the last DAYS days (UTC).",
)
@config_options
def stats(source: Source, as_json: bool, days: int | None) -> None:
    """Show the number of jobs in each state, queue and group.

    processed and failed count all jobs since the last reset, expired those that were dropped because they had
    not started in time; enqueued, busy (running), scheduled, retries and
    dead are the current jobs; processes are the live servers, Sidekiq's included. size is the number of jobs
    that wait in a queue. A group is a set of queues that share workers (see `pyworkers run --group`): busy of
    its jobs run, and as many as "of" can run at a time.

    \b
    Example: pyworkers stats --history 7
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = Stats.fetch(config)
    history = Stats.history(days, config) if days else []
    if as_json:
        click.echo(
            json.dumps(_as_dict(found) | ({"history": [day.as_dict() for day in history]} if days else {}))
        )
        return
    click.echo(_table(found.counts()))
    if found.queues:
        sizes = [(printable(queue.name), str(queue.size)) for queue in found.queues]
        click.echo("\n" + "\n".join(table(("queue", "size"), sizes, right=(1,))))
    if found.groups:
        click.echo("\n" + "\n".join(table(_GROUPS, map(group_row, found.groups), right=(2, 3, 4, 5))))
    if history:
        rows = [(day.date.isoformat(), str(day.processed), str(day.failed)) for day in history]
        click.echo("\n" + "\n".join(table(("day", "processed", "failed"), rows, right=(1, 2))))


def _as_dict(found: Stats) -> dict[str, Any]:
    """The numbers, queues and groups for JSON."""
    return {name: value for name, value in found.as_dict().items() if name != "servers"}


def _table(counts: dict[str, int]) -> str:
    names = max(map(len, counts))
    numbers = max(len(str(count)) for count in counts.values())
    return "\n".join(f"{name:<{names}}  {count:>{numbers}}" for name, count in counts.items())
