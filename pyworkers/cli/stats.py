"""``pyworkers stats`` and ``metrics``: how many jobs each state has, and how long jobs of each class took.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from pyworkers.api import Day, Metrics, Period, ProcessSet, Stats
from pyworkers.api.columns import Column
from pyworkers.api.groups import GROUP
from pyworkers.api.metrics import CLASS_METRICS
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.stats import DAY, MOST_DAYS
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option
from pyworkers.cli.targets import Located, each
from pyworkers.config.fields import RedisConfig

_GROUPS = GROUP.shown("group", "mode", "servers", "processes", "busy", "concurrency", "spelled")
_SIZES = QUEUE.shown("name", "size")
_DAYS = DAY.shown("date", "processed", "failed")


@click.command()
@json_option
@click.option(
    "--history",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, MOST_DAYS),
    help="Also show the counts of each of the last DAYS days (UTC).",
)
@redis_options
def stats(source: ConfigOptions, as_json: bool, days: int | None) -> None:
    """Show the number of jobs in each state, queue and group.

    Counted since the last reset:

    \b
    processed    jobs that ran, failed ones included
    failed       jobs that failed
    expired      jobs that were dropped because they had not started in time
    crashed      runs whose worker process ended
    interrupted  jobs that run again after a stop or the loss of their server
    recovered    jobs whose server was lost
    cancelled    jobs that were cancelled
    misfits      runs that did not fit their server
    suspects     jobs that ran alone because their servers died

    Now: enqueued, busy (running), scheduled, retries and dead are jobs; processes are the live servers,
    Sidekiq's included. size is the number of jobs that wait in a queue. A group is a set of queues that
    share workers (see `pyworkers run --group`): busy of its jobs run, and as many as "of" can run at a time.

    \b
    Example: pyworkers stats --history 7
    """
    targets = source.targets()
    read = targets.gather(lambda redis: _read(redis, days))
    if as_json:
        targets.print_json(read, lambda pair: _as_dict(*pair))
        return
    click.echo(_table(read, named=targets.several))
    now = max((one.item[0].now for one in read), default=0.0)
    parts: Sequence[tuple[Sequence[Column[Any]], list[Located[Any]]]] = (
        (_SIZES, each(Located(one.redis, one.item[0].queues) for one in read)),
        (_GROUPS, each(Located(one.redis, one.item[0].groups) for one in read)),
        (_DAYS, each(Located(one.redis, one.item[1] or []) for one in read)),
    )
    for columns, rows in parts:
        if rows:
            click.echo()
            targets.show(Form(now), columns, rows)


@click.command()
@json_option
@click.option("--day", is_flag=True, help="The last 24 hours, instead of the last 60 minutes.")
@redis_options
def metrics(source: ConfigOptions, as_json: bool, day: bool) -> None:
    """Show runs, failures and durations of each class.

    The jobs of the last 60 minutes on servers of pyworkers and of Sidekiq 8. processed counts all runs; total
    is the time of the runs that did not fail, and p95 the duration that 95 % of these do not exceed,
    estimated from a histogram of 26 durations. Over a day, the percentiles include only jobs on servers of
    pyworkers.

    \b
    Example: pyworkers metrics --day
    """
    targets, period = source.targets(), Period.DAY if day else Period.HOUR
    read = targets.gather(lambda redis: _metrics(redis, period))
    classes = each(Located(one.redis, one.item.classes) for one in read)
    if as_json:
        targets.print_json(read, lambda metrics: metrics.as_dict())
    elif classes:
        targets.show(Form(max(one.item.now for one in read)), CLASS_METRICS.shown(), classes)
    elif read:
        click.echo(f"No job ran in the last {period.value}.")


def _read(redis: RedisConfig, days: int | None) -> tuple[Stats, list[Day] | None]:
    ProcessSet(redis).refresh()
    return Stats.fetch(redis), Stats.history(days, redis) if days else None


def _metrics(redis: RedisConfig, period: Period) -> Metrics:
    ProcessSet(redis).refresh()
    return Metrics.fetch(period, redis)


def _as_dict(found: Stats, history: list[Day] | None) -> dict[str, Any]:
    """The numbers, queues and groups for JSON."""
    days = {} if history is None else {"history": [day.as_dict() for day in history]}
    return {name: value for name, value in found.as_dict().items() if name != "servers"} | days


def _table(read: Sequence[Located[tuple[Stats, Any]]], *, named: bool) -> str:
    """The counts, a column for each Redis."""
    counts = [{name: str(count) for name, count in one.item[0].counts().items()} for one in read]
    heads = [one.redis if named else "" for one in read]
    rows = [[name, *(column[name] for column in counts)] for name in counts[0]] if counts else []
    table = [["", *heads], *rows] if named else rows
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(map(str.rjust, row[1:], widths[1:]))]) for row in table
    )
