"""``pyworkers resume``: undo ``pyworkers pause``. Run by people and scripts."""

from __future__ import annotations

import json

import click

from pyworkers.api import Queue
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
def resume(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Let servers take jobs from a paused QUEUE again.

    \b
    Example: pyworkers resume mail
    """
    config = source.redis()
    changed = [name for name in queues if Queue(name, config).resume()]
    if as_json:
        click.echo(json.dumps({"action": "resume", "changed": changed}))
        return
    for name in queues:
        click.echo(f"{printable(name)} " + ("goes on" if name in changed else "was not paused"))
