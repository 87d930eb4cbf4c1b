"""``pyworkers cancel``: let a job not run, wherever it is. Run by people and scripts."""

from __future__ import annotations

import json

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable
from pyworkers.client import Client
from pyworkers.store.cancelling import Cancelled

_SENTENCES = {
    Cancelled.REMOVED: "removed before it began",
    Cancelled.RUNNING: "runs; its server asks it to end, and kills it two seconds later",
    Cancelled.UNKNOWN: "not found; should it turn up within a day, it will not start",
}


@click.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object of jid and result.")
@config_options
@click.pass_context
def cancel(ctx: click.Context, source: Source, jids: tuple[str, ...], as_json: bool) -> None:
    """Let a job not run, or end it if it runs.

    It is removed where it waits: in its queue, for its time or for a retry. If it runs, on whatever server,
    JobCancelled is raised in it, and its worker is killed two seconds later. It is not retried.

    Exit code 1 if one of the jobs was not found.

    \b
    Example: pyworkers cancel b4a577edbccf1d805744efa9
    """
    client = Client.from_config(source.redis())
    found = {jid: client.cancel(jid) for jid in jids}
    if as_json:
        click.echo(json.dumps(found))
    else:
        for jid, result in found.items():
            click.echo(f"{printable(jid)}: {_SENTENCES[result]}")
    if Cancelled.UNKNOWN in found.values():
        ctx.exit(1)
