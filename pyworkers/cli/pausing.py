"""``pyworkers pause`` and ``resume``: pauses queues, and resumes them.

Run by people and scripts.
"""

from __future__ import annotations

import click

from pyworkers.api import ProcessSet
from pyworkers.api.queue import PAUSE, RESUME
from pyworkers.cli.actions import command, perform, show
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option
from pyworkers.cli.targets import each
from pyworkers.cli.text import printable
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.options import suggestion


@click.command(help=PAUSE.command)
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@json_option
@redis_options
def pause(source: ConfigOptions, queues: tuple[str, ...], as_json: bool) -> None:
    """Pause queues; warn of those that no server serves."""
    for name in queues:
        try:
            check_queue_name(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    outcomes = [perform(source.target_of(name), PAUSE, {"name": name}) for name in queues]
    read = source.targets().gather(lambda redis: list(ProcessSet(redis)))
    served = {name for one in each(read) for name in one.item.queues}
    unserved = [name for name in queues if name not in served]
    show(outcomes, as_json, unserved=unserved)
    for name in () if as_json else unserved:
        near = printable(suggestion(name, served))
        click.echo(f"No server serves {name}; {near or '`pyworkers queues` shows all.'}", err=True)


resume = command(RESUME)
