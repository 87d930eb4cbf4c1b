"""``pyworkers enqueue``: enqueues jobs by hand.

Run by people and scripts. Parses the arguments strictly; the client builds and sends the jobs.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import click

from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.output.unknown import warn_of_unknown
from pyworkers.cli.params import parse_args, parse_duration, parse_queue, parse_retry, parse_time, reads
from pyworkers.cli.text import printable
from pyworkers.client import Client
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.options import EnqueueOptions

# Up to this number, each jid is printed. A script that needs more of them can enqueue in portions.
_MOST_JIDS_SHOWN = 20


@click.command()
@click.argument("queue", callback=reads(parse_queue))
@click.argument("job_class", metavar="CLASS")
@click.argument("args", metavar="[JSON_ARGS]", default="[]", callback=reads(parse_args))
@click.option(
    "--in",
    "delay_s",
    metavar="DURATION",
    callback=reads(parse_duration),
    help="Run it after this time: 250ms, 10s, 5m, 2h, 1d, 1h30m, or a number of seconds.",
)
@click.option(
    "--at",
    metavar="TIME",
    callback=reads(parse_time),
    help="Run it at this time: 2030-01-31T12:00:00Z (or with an offset such as +01:00), or epoch seconds.",
)
@click.option(
    "--retry",
    metavar="true|false|N",
    callback=reads(parse_retry),
    help="Retries of a failed job: true for 25, false to drop it, or a number.  [default: the handler's]",
)
@click.option(
    "--expires-in",
    "expires_s",
    metavar="DURATION",
    callback=reads(parse_duration),
    help="Drop the job if it has not started so long after it is due.",
)
@click.option(
    "--count",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help=f"Enqueue N identical jobs; above {_MOST_JIDS_SHOWN}, their number is printed instead of their ids.",
)
@click.option("--encrypt", is_flag=True, help="Encrypt the arguments with the newest key of [encryption].")
@json_option
@config_options
def enqueue(
    source: ConfigOptions,
    queue: str,
    job_class: str,
    args: list[Any],
    delay_s: float | None,
    at: float | None,
    retry: bool | int | None,
    expires_s: float | None,
    count: int,
    encrypt: bool,
    as_json: bool,
) -> None:
    """Enqueue a job of CLASS into QUEUE and print its id (jid).

    JSON_ARGS is the JSON list of the job's arguments; - reads it from stdin.

    \b
    Examples: pyworkers enqueue mail SendMail '[7, "hello"]'
              pyworkers enqueue mail SendMail '[7, "hello"]' --in 1h30m --retry 5
    """
    if delay_s is not None and at is not None:
        raise click.UsageError("--in and --at exclude each other.")
    keys = source.load().encryption.keys if encrypt else None
    options: EnqueueOptions = {} if expires_s is None else {"expires_in": expires_s}
    if encrypt:
        options["encrypt"] = True
    with Client.from_config(source.redis(), encryption=keys or None) as client:
        try:
            jids = client.enqueue_bulk(
                queue, job_class, repeat(args, count), delay=delay_s, at=at, retry=retry, **options
            )
        except BadArgumentError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        print_action("enqueue", len(jids), jids=jids)
    else:
        click.echo("\n".join(map(printable, jids)) if count <= _MOST_JIDS_SHOWN else count)
    warn_of_unknown(source.redis(), queue, job_class)
