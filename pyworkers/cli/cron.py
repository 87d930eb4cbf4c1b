"""``pyworkers cron``: shows the cron entries, and changes them while servers run.

Run by people and scripts. Entries of code and configuration are shown and paused, but never rewritten.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from pyworkers.api import CronJob, CronSet
from pyworkers.api.cron import ACTIONS, ADD
from pyworkers.api.cronjob import CRON, RUN
from pyworkers.cli.actions import commands, perform
from pyworkers.cli.joboptions import job_options
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option, print_action, print_list
from pyworkers.cli.output.times import Times, distance, utc_option
from pyworkers.cli.output.unknown import warn_of_unknown
from pyworkers.cli.params import parse_args, parse_duration, parse_queue, reads
from pyworkers.cli.targets import each
from pyworkers.cli.text import printable
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.cron import MISFIRES

_ENTRIES = Records(
    CRON.shown("name", "schedule", "timezone", "class", "queue", "origin", "state", "next"),
    "No cron entries: none was added, and no running server declares any.",
)
_LIST = _ENTRIES.command(
    "list",
    CronSet,
    """Show all entries by name.

    \b
    Example: pyworkers cron list --utc
    """,
)
_RUN_COLUMNS = RUN.shown("slot", "outcome", "duration", "jid", "error")
_HELP = """Show cron entries; add, pause, resume, remove or trigger them.

Without a command, list them. Servers apply a change within about three seconds. Entries declared in code or
configuration are listed while a server with them runs; this command can pause and trigger them, but not
change them.

\b
Examples: pyworkers cron
          pyworkers cron add nightly '0 3 * * *' Sweep '[7]' --timezone Europe/Paris
"""
_name = click.argument("name")


@click.command()
@_name
@click.argument("schedule")
@click.argument("job_class", metavar="CLASS")
@click.argument("args", metavar="[JSON_ARGS]", default="[]", callback=reads(parse_args))
@click.option(
    "-q",
    "--queue",
    default="default",
    show_default=True,
    callback=reads(parse_queue),
    help="Queue of the job.",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    default="UTC",
    show_default=True,
    help="Time zone of the schedule, e.g. Europe/Paris.",
)
@click.option(
    "--misfire",
    type=click.Choice(MISFIRES),
    default="once",
    show_default=True,
    help="What happens to the slots missed while no server ran.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    default="300",
    show_default=True,
    callback=reads(parse_duration),
    help="Age above which a missed slot is dropped: 90, 5m, 1h30m.",
)
@click.option("--replace", is_flag=True, help="Replace a run-time entry of the same name.")
# An id is for one job, and the arguments of an entry are stored in plain text.
@job_options(without=("jid", "encrypt"))
@json_option
@utc_option
@redis_options
def add(
    source: ConfigOptions, /, name: str, schedule: str, job_class: str, args: list[Any], **options: Any
) -> None:
    """Add an entry; its first slot is after now.

    SCHEDULE is a cron line of five fields, or of six with the seconds at the end; a nickname such as @daily;
    or 'every 30s' (s, m, h, d).

    \b
    Example: pyworkers cron add poll 'every 30s' Poll -q mail
    """
    as_json, times = options.pop("as_json"), options.pop("times")
    options["retry"] = options["options"].pop("retry", None)
    redis, targets = source.redis_of(options["queue"]), source.target_of(options["queue"])
    try:
        given = {"name": name, "schedule": schedule, "job_class": job_class, "args": args, **options}
        perform(targets, ADD, given)
    except BadArgumentError as error:
        raise click.UsageError(str(error)) from error
    job = CronSet(redis).find(name)
    if as_json:
        print_action("add", 1, name=name, entry=None if job is None else job.as_dict())
    elif job is not None:
        click.echo(f"{printable(name)} fires next {_moment(job, job.next_slots()[0], times)}")
    warn_of_unknown(redis, options["queue"], job_class)


@click.command("next")
@click.argument("name", required=False)
@click.option(
    "-n", "--count", metavar="N", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many."
)
@json_option
@utc_option
@redis_options
def next_(source: ConfigOptions, name: str | None, count: int, as_json: bool, times: Times) -> None:
    """Show the next slots of an entry; without NAME, of all entries.

    Times are in the entry's own time zone.

    \b
    Example: pyworkers cron next nightly --count 10
    """
    read = source.targets().gather(lambda redis: list(CronSet(redis)))
    jobs = [one.item for one in each(read) if name in (None, one.item.name)]
    if name is not None and not jobs:
        raise BadArgumentError(f"there is no cron entry {name!r}", hint="`pyworkers cron list` shows them.")
    slots = sorted((slot, job.name, job) for job in _active(jobs, name) for slot in job.next_slots(count))[
        :count
    ]
    if as_json:
        print_list({"name": job.name, "slot": slot} for slot, _, job in slots)
        return
    for slot, _, job in slots:
        click.echo(f"{_moment(job, slot, times)}  {printable(job.name)}")


@click.command()
@_name
@json_option
@utc_option
@redis_options
def runs(source: ConfigOptions, name: str, as_json: bool, times: Times) -> None:
    """Show the last fifty runs of an entry, with their outcome.

    Triggered runs are included. Exit code 1 if there is no such entry.

    \b
    Example: pyworkers cron runs nightly
    """
    located = source.targets().first(lambda redis: CronSet(redis).find(name))
    if located is None:
        raise BadArgumentError(f"there is no cron entry {name!r}", hint="`pyworkers cron list` shows them.")
    found, now = located[1].runs, time.time()
    if as_json:
        print_list(run.as_dict() for run in found)
    elif found:
        Form(now, times).show(_RUN_COLUMNS, found)
    else:
        click.echo(f"{printable(name)} has not fired yet")


def _active(jobs: Sequence[CronJob], name: str | None) -> Iterator[CronJob]:
    """The entries that fire; a named entry also while it is paused."""
    return (job for job in jobs if not job.shadowed and (name is not None or not job.paused))


def _moment(job: CronJob, slot: int, times: Times) -> str:
    """The slot in the entry's own time zone and how far away it is, or in UTC."""
    now = time.time()
    if times.utc:
        return times.cell(slot, now)
    local = datetime.fromtimestamp(slot, ZoneInfo(job.entry.timezone)).isoformat(" ")
    return f"{local} ({distance(slot - now)})"


cron = listing_group(
    "cron",
    _HELP,
    {
        "list": _LIST,
        "add": add,
        **commands(ACTIONS),
        "next": next_,
        "runs": runs,
    },
)
