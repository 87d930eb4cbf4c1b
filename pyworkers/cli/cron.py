"""``pyworkers cron``: shows the cron entries, and changes them while servers run.

Run by people and scripts. Entries of code and configuration are shown and paused, but never rewritten.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import click

from pyworkers.api import CronJob, CronSet
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.params import parse_args, parse_duration, parse_queue, parse_retry, reads
from pyworkers.cli.text import duration, printable, table
from pyworkers.errors import BadArgumentError

_HEADER = ("name", "schedule", "time zone", "job", "queue", "origin", "state", "next")

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_name = click.argument("name")


@click.group()
def cron() -> None:
    """Show cron entries; add, pause, resume, remove or trigger them.

    Servers apply a change within about three seconds. Entries declared in code or configuration are listed
    while a server with them runs; here they can be paused and triggered, not changed.

    \b
    Example: pyworkers cron add nightly '0 3 * * *' Sweep '[7]' --timezone Europe/Paris
    """


@cron.command("list")
@_json
@config_options
def list_(source: Source, as_json: bool) -> None:
    """Show all entries by name."""
    now, jobs = time.time(), list(CronSet(source.redis()))
    if as_json:
        click.echo(json.dumps([job.as_dict(now) for job in jobs]))
    elif jobs:
        click.echo("\n".join(table(_HEADER, [_row(job, now) for job in jobs])))
    else:
        click.echo("No cron entries: none was added, and no running server declares any.")


@cron.command()
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
    type=click.Choice(["skip", "once", "all"]),
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
    help="How long a slot counts as late, not as missed: 90, 5m, 1h30m.",
)
@click.option(
    "--retry",
    metavar="true|false|N",
    callback=reads(parse_retry),
    help="Retries of the job if it fails.  [default: the handler's]",
)
@click.option("--replace", is_flag=True, help="Replace a run-time entry of the same name.")
@_json
@config_options
def add(source: Source, /, name: str, schedule: str, job_class: str, args: list[Any], **options: Any) -> None:
    """Add an entry; its first slot is after now.

    SCHEDULE is a cron line of five fields, or of six with the seconds at the end; a nickname such as @daily;
    or 'every 30s' (s, m, h, d).

    \b
    Example: pyworkers cron add poll 'every 30s' Poll -q mail
    """
    as_json = options.pop("as_json")
    entries = CronSet(source.redis())
    try:
        entries.add(name, schedule, job_class, args, **options)
    except BadArgumentError as error:
        raise click.UsageError(str(error)) from error
    job = entries.find(name)
    if as_json:
        click.echo(json.dumps(None if job is None else job.as_dict()))
    elif job is not None:
        click.echo(f"{printable(name)} fires next {_moment(job, job.next_slots()[0])}")


@cron.command()
@_name
@config_options
def pause(source: Source, name: str) -> None:
    """Pause an entry: it fires no more until resumed."""
    changed = CronSet(source.redis()).pause(name)
    click.echo(f"{printable(name)} is paused" + ("" if changed else " already"))


@cron.command()
@_name
@config_options
def resume(source: Source, name: str) -> None:
    """Resume a paused entry; slots missed during the pause do not fire."""
    changed = CronSet(source.redis()).resume(name)
    click.echo(f"{printable(name)} " + ("fires again" if changed else "was not paused"))


@cron.command()
@_name
@config_options
def remove(source: Source, name: str) -> None:
    """Remove an entry that was added at run time."""
    CronSet(source.redis()).remove(name)
    click.echo(f"{printable(name)} is removed")


@cron.command()
@_name
@config_options
def trigger(source: Source, name: str) -> None:
    """Enqueue the job of an entry now; print its id (jid).

    The slots of the entry fire as usual.
    """
    click.echo(CronSet(source.redis()).trigger(name))


@cron.command("next")
@click.argument("name", required=False)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many.")
@_json
@config_options
def next_(source: Source, name: str | None, count: int, as_json: bool) -> None:
    """Show the next slots of an entry; without NAME, of all entries."""
    jobs = [job for job in CronSet(source.redis()) if name in (None, job.name)]
    if name is not None and not jobs:
        raise BadArgumentError(f"there is no cron entry {name!r}", hint="`pyworkers cron list` shows them.")
    slots = sorted((slot, job.name, job) for job in _active(jobs, name) for slot in job.next_slots(count))[
        :count
    ]
    if as_json:
        click.echo(json.dumps([{"name": job.name, "slot": slot} for slot, _, job in slots]))
        return
    for slot, _, job in slots:
        click.echo(f"{_moment(job, slot)}  {printable(job.name)}")


def _active(jobs: Sequence[CronJob], name: str | None) -> Iterator[CronJob]:
    """The entries that fire; a named entry also while it is paused."""
    return (job for job in jobs if not job.shadowed and (name is not None or not job.paused))


def _row(job: CronJob, now: float) -> list[str]:
    entry = job.entry
    due = f"in {duration(job.next_slots(1, now)[0] - now)}" if job.state == "active" else ""
    words = (
        entry.name,
        entry.schedule,
        entry.timezone,
        entry.job_class,
        entry.queue,
        entry.origin,
        job.state,
    )
    return [*map(printable, words), due]


def _moment(job: CronJob, slot: int) -> str:
    """The slot in the entry's own time zone, with its offset, and in UTC."""
    local = datetime.fromtimestamp(slot, ZoneInfo(job.entry.timezone)).isoformat(" ")
    return f"{local} ({datetime.fromtimestamp(slot, UTC):%Y-%m-%d %H:%M:%S} UTC)"
