"""``pyworkers pause``: let no server take jobs from a queue. Run by people and scripts."""

from __future__ import annotations

import json

import click

from pyworkers.api import Queue
from pyworkers.cli.options import Source, config_options
from pyworkers.protocol.keys import check_queue_name


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
def pause(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Let servers take no more jobs from QUEUE.

    Jobs can still be enqueued, and what runs goes on. Servers notice within 10 seconds: pyworkers and Sidekiq
    Pro; Sidekiq without Pro and go-workers do not.

    \b
    Example: pyworkers pause mail
    """
    config = source.redis()
    for name in queues:
        try:
            check_queue_name(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    changed = [name for name in queues if Queue(name, config).pause()]
    if as_json:
        click.echo(json.dumps({"action": "pause", "changed": changed}))
        return
    for name in queues:
        click.echo(f"{name} is paused" + ("" if name in changed else " already"))
