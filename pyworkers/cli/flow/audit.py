"""``pyworkers audit``: who did what, by the dashboard and by commands. Run by people and scripts."""

from __future__ import annotations

import time

import click

from pyworkers.api import Action, AuditLog
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.output.tables import Column, show
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import printable

_COLUMNS = (
    Column("when"),
    Column("who", cut=3),
    Column("from", cut=4),
    Column("action", cut=5),
    Column("target", cut=1),
    Column("result", cut=2),
)
_MOST = 1000


@click.command()
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, _MOST), default=50, show_default=True, help="At most N."
)
@json_option
@utc_option
@config_options
def audit(source: Source, limit: int, as_json: bool, times: Times) -> None:
    """Show what people did, by the dashboard or a command.

    Redis holds the last 1,000 actions. A program that calls pyworkers.api writes its own (AuditLog.record).

    \b
    Example: pyworkers audit --limit 10
    """
    found = AuditLog(source.redis()).page(0, limit).actions
    now = time.time()
    if as_json:
        print_list(action.as_dict() for action in found)
    elif found:
        show(_COLUMNS, [_row(action, now, times) for action in found])
    else:
        click.echo("No action was taken yet.")


def _row(action: Action, now: float, times: Times) -> tuple[str, ...]:
    texts = (action.who, action.source, action.action, action.target, action.result)
    return times.cell(action.at, now), *map(printable, texts)
