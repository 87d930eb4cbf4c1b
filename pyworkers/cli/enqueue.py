"""``pyworkers enqueue``: enqueues jobs by hand.

Run by people and scripts. Parses the arguments strictly; ``api`` builds and sends the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import repeat
from typing import Any

import click

from pyworkers.api.enqueueing import FIELDS, Enqueued, enqueue_all, read, writing_with
from pyworkers.api.target import admin_of
from pyworkers.cli.flow.tracking import print_result
from pyworkers.cli.joboptions import job_options
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.unknown import warn_of_unknown
from pyworkers.cli.params import parse_args, parse_duration, parse_queue, reads, time_options
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError

# Up to this number, each jid is printed. A script that needs more of them can enqueue in portions.
_MOST_JIDS_SHOWN = 20
# How long the result is kept if nothing else says so.
_KEPT_S = 60


@click.command()
@click.argument("queue", callback=reads(parse_queue))
@click.argument("job_class", metavar="CLASS")
@click.argument("args", metavar="[JSON_ARGS]", default="[]", callback=reads(parse_args))
@time_options(
    "Run it after this time: 250ms, 10s, 5m, 2h, 1d, 1h30m, or a number of seconds.",
    "Run it at this time: 2030-01-31T12:00:00Z (or with an offset such as +01:00), or epoch seconds.",
)
@click.option("--batch", metavar="ID", help=FIELDS["batch"])
@click.option(
    "--count",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help=f"Enqueue N identical jobs; above {_MOST_JIDS_SHOWN}, their number is printed instead of their ids.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="DURATION",
    callback=reads(parse_duration),
    help="Wait this long for the result, and print it. Without --track, it is kept for a minute.",
)
@job_options()
@json_option
@redis_options
@click.pass_context
def enqueue(
    ctx: click.Context,
    source: ConfigOptions,
    /,
    queue: str,
    job_class: str,
    args: list[Any],
    *,
    count: int,
    wait_s: float | None,
    as_json: bool,
    options: dict[str, Any],
    **when: Any,
) -> None:
    """Enqueue a job of CLASS into QUEUE and print its id (jid).

    JSON_ARGS is the JSON list of the job's arguments; - reads it from stdin.

    With --wait, print the result of the job as JSON. Exit code 1 if the job has failed, or has not ended in
    the time: then stderr has its id, for pyworkers result.

    \b
    Examples: pyworkers enqueue mail SendMail '[7, "hello"]'
              pyworkers enqueue mail SendMail '[7, "hello"]' --in 1h30m --retry 5
              pyworkers enqueue math Add '[1, 2]' --unique-for 1h --wait 10
    """
    if when["delay_s"] is not None and when["at"] is not None:
        raise click.UsageError("--in and --at exclude each other.")
    if count > 1 and (wait_s is not None or "jid" in options):
        raise click.UsageError("--wait and --jid are for one job: leave --count out.")
    if wait_s is not None:
        options.setdefault("track", _KEPT_S)
    about = {"in": when["delay_s"], "at": when["at"], "batch": when["batch"]}
    given = {name: value for name, value in about.items() if value is not None} | options
    redis = source.redis_of(queue)
    found = _enqueued(source, redis, {"queue": queue, "class": job_class, "args": args, **given}, count)
    warn_of_unknown(redis, queue, job_class)
    if wait_s is None:
        _print(found, as_json)
    elif not print_result(redis, found[0].jid, wait_s, as_json, _facts(found)):
        ctx.exit(1)


def _enqueued(
    source: ConfigOptions, redis: RedisConfig, given: Mapping[str, Any], count: int
) -> list[Enqueued]:
    writing = writing_with(source.load().encryption.keys)
    try:
        jobs = (read(each, time.time(), writing) for each in repeat(given, count))
        return enqueue_all(admin_of(redis), jobs)
    except BadArgumentError as error:
        raise click.UsageError(str(error)) from error


def _print(found: list[Enqueued], as_json: bool) -> None:
    jids = [job.jid for job in found]
    if as_json:
        print_json(_facts(found))
    else:
        click.echo("\n".join(map(printable, jids)) if len(jids) <= _MOST_JIDS_SHOWN else len(jids))


def _facts(found: list[Enqueued]) -> dict[str, Any]:
    """The JSON of the command; for a duplicate, with the id of the other job."""
    return {"action": "enqueue", "done": len(found), "jids": [job.jid for job in found]}
