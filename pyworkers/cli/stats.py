"""``pyworkers stats``: how many jobs there are in each state.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from pyworkers.api import Stats
from pyworkers.cli.options import Source, config_options


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
def stats(source: Source, as_json: bool) -> None:
    """Show how many jobs there are in each state.

    processed and failed count since the counters began; enqueued, busy (in progress), scheduled, retries and
    dead are the jobs there now; processes are the servers that are alive.
    """
    counts = asdict(Stats.fetch(source.redis()))
    click.echo(json.dumps(counts) if as_json else _table(counts))


def _table(counts: dict[str, int]) -> str:
    names = max(map(len, counts))
    numbers = max(len(str(count)) for count in counts.values())
    return "\n".join(f"{name:<{names}}  {count:>{numbers}}" for name, count in counts.items())
