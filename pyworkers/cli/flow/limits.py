"""``pyworkers limits``: shows the limits over all servers, and resets them.

Run by people and scripts.
"""

from __future__ import annotations

import json

import click

from pyworkers.api import LimitSet, LimitStats
from pyworkers.cli.options import Source, config_options, listing_group
from pyworkers.cli.text import duration, printable, table

_HEADER = ("limit", "allows", "in use", "waiting")
_HELP = """Show the limits over all servers, with their use; reset them.

in use is the number of starts in the period of a rate, or of the jobs that hold a slot. A limit with by=
has a line for each of its values that is in use.

\b
Examples: pyworkers limits --json
          pyworkers limits reset stripe
"""

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list")
@_json
@config_options
def list_(source: Source, as_json: bool) -> None:
    """Show the limits by name."""
    found = list(LimitSet(source.redis()))
    if as_json:
        click.echo(json.dumps([limit.as_dict() for limit in found]))
    elif found:
        click.echo("\n".join(table(_HEADER, map(_row, found), right=(2, 3))))
    else:
        click.echo("No limits: no job with limits has asked for one.")


@click.command()
@click.argument("name")
@_json
@config_options
@click.pass_context
def reset(ctx: click.Context, source: Source, name: str, as_json: bool) -> None:
    """Free all slots of the limit NAME, and forget its starts, with every value of its by=.

    Jobs that hold a slot continue, so more jobs than the limit allows may run for a while. The exit code is 1
    if the limit is not in use.

    \b
    Example: pyworkers limits reset stripe
    """
    count = LimitSet(source.redis()).reset(name)
    if as_json:
        click.echo(json.dumps({"action": "reset", "name": name, "reset": count}))
    else:
        click.echo(f"{printable(name)} is " + ("reset" if count else "not in use"), err=not count)
    if not count:
        ctx.exit(1)


def _row(limit: LimitStats) -> tuple[str, ...]:
    what = f"{limit.most} in {duration(limit.per_s)}" if limit.per_s else f"{limit.most} at once"
    return printable(limit.key), what, str(limit.used), str(limit.waiting)


limits = listing_group("limits", _HELP, {"list": list_, "reset": reset})
