"""``pyworkers batches``: lists, shows and deletes batches, chains and groups.

Run by people and scripts.
"""

from __future__ import annotations

import json
import time

import click

from pyworkers.api import BatchSet
from pyworkers.cli.options import Source, config_options, listing_group
from pyworkers.cli.text import duration, printable, table
from pyworkers.protocol.flow.plans import BatchStatus

_HEADER = ("id", "kind", "state", "total", "pending", "done", "failed", "dead", "age", "description")
_STATES = ("waiting", "failed", "dead")
_HELP = """Show batches, chains and groups; delete them.

total counts the members without those that were deleted, cancelled, expired or discarded; pending those that
are neither done nor dead; failed those that wait for a retry. A batch is open while members are added, and
stays open if the program that added them has died: its callbacks do not fire. A batch that has succeeded is
kept for a day.

\b
Examples: pyworkers batches --json
          pyworkers batches show b4a577edbccf1d805744efa9
"""
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list")
@_json
@config_options
def list_(source: Source, as_json: bool) -> None:
    """Show all batches, the newest first."""
    found = [batch.status for batch in BatchSet(source.redis())]
    now = time.time()
    if as_json:
        click.echo(json.dumps([about.as_dict() for about in found]))
    elif found:
        click.echo("\n".join(table(_HEADER, [_row(about, now) for about in found], right=(3, 4, 5, 6, 7, 8))))
    else:
        click.echo("No batches.")


@click.command()
@click.argument("batch", metavar="ID")
@_json
@config_options
@click.pass_context
def show(ctx: click.Context, source: Source, batch: str, as_json: bool) -> None:
    """Show the numbers of a batch, and the ids of up to 100 members in each state.

    The exit code is 1 if there is no such batch.
    """
    found = BatchSet(source.redis()).find(batch)
    if found is None:
        click.echo(f"{printable(batch)}: unknown", err=True)
        ctx.exit(1)
    about = {**found.status.as_dict(), "members": {state: found.members(state) for state in _STATES}}
    if as_json:
        click.echo(json.dumps(about))
        return
    for name, value in about.items():
        if name != "members":
            click.echo(f"{name:<12} {printable(str(value))}")
    for state, jids in about["members"].items():
        click.echo(f"{state:<12} {' '.join(map(printable, jids)) or '-'}")


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_json
@config_options
@click.pass_context
def delete(ctx: click.Context, source: Source, ids: tuple[str, ...], as_json: bool) -> None:
    """Delete batches and those inside them, not their jobs; no callback fires.

    The exit code is 1 if one of them does not exist.
    """
    found = BatchSet(source.redis())
    deleted = [batch for batch in ids if found.delete(batch)]
    if as_json:
        click.echo(json.dumps({"action": "delete", "deleted": deleted}))
    else:
        for batch in ids:
            click.echo(f"{printable(batch)}: {'deleted' if batch in deleted else 'unknown'}")
    if len(deleted) < len(ids):
        ctx.exit(1)


def _row(about: BatchStatus, now: float) -> tuple[str, ...]:
    numbers = (about.total, about.pending, about.done, about.failed, about.dead)
    age = duration(max(0.0, now - about.created_at))
    return about.id, about.kind, about.state, *map(str, numbers), age, printable(about.description)


batches = listing_group("batches", _HELP, {"list": list_, "show": show, "delete": delete})
