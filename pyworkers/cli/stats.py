"""``pyworkers stats``: the number of jobs in each state.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import json

import click

from pyworkers.api import ProcessSet, Stats
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import table


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
    """Show the number of jobs in each state.

    processed and failed count all jobs since the last reset; enqueued, busy (running), scheduled, retries and
    dead are the current jobs; processes are the live servers, Sidekiq's included.

    \b
    Example: pyworkers stats --history 7
    """
    config = source.redis()
    ProcessSet(config).refresh()
    counts = Stats.fetch(config).counts()
    history = Stats.history(days, config) if days else []
    if as_json:
        click.echo(json.dumps(counts | ({"history": [day.as_dict() for day in history]} if days else {})))
        return
    click.echo(_table(counts))
    if history:
        rows = [(day.date.isoformat(), str(day.processed), str(day.failed)) for day in history]
        click.echo("\n" + "\n".join(table(("day", "processed", "failed"), rows, right=(1, 2))))


def _table(counts: dict[str, int]) -> str:
    names = max(map(len, counts))
    numbers = max(len(str(count)) for count in counts.values())
    return "\n".join(f"{name:<{names}}  {count:>{numbers}}" for name, count in counts.items())
