"""``pyworkers stats`` and ``metrics``: the number of jobs in each state, and what those of each class took.

Run by people and scripts. Reads only.
"""

from __future__ import annotations

from typing import Any

import click

from pyworkers.api import Metrics, Period, ProcessSet, Stats
from pyworkers.api.groups import GROUP
from pyworkers.api.metrics import CLASS_METRICS
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.stats import DAY
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_json

_GROUPS = GROUP.shown("group", "mode", "servers", "processes", "busy", "concurrency", "spelled")
_SIZES = QUEUE.shown("name", "size")
_DAYS = DAY.shown("date", "processed", "failed")


@click.command()
@json_option
@click.option(
    "--history",
    "days",
    metavar="DAYS",
    type=click.IntRange(1, 5 * 365),
    help="Also show the counts of each of the last DAYS days (UTC).",
)
@config_options
def stats(source: ConfigOptions, as_json: bool, days: int | None) -> None:
    """Show the number of jobs in each state, queue and group.

    processed and failed count all jobs since the last reset. expired counts those that were dropped because
    they had not started in time, crashed the runs whose worker process ended, interrupted the jobs that run
    again after a stop or a loss, and recovered those of them whose server was lost. cancelled counts jobs,
    misfits the runs that did not fit their server, and suspects the jobs that ran alone because their servers
    died. enqueued, busy (running), scheduled, retries and dead are the current jobs; processes are the live
    servers, Sidekiq's included. size is the number of jobs that wait in a queue. A group is a set of queues
    that share workers (see `pyworkers run --group`): busy of its jobs run, and as many as "of" can run at a
    time.

    \b
    Example: pyworkers stats --history 7
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = Stats.fetch(config)
    history = Stats.history(days, config) if days else []
    if as_json:
        print_json(_as_dict(found) | ({"history": [day.as_dict() for day in history]} if days else {}))
        return
    click.echo(_table(found.counts()))
    if found.queues:
        click.echo()
        Form(found.now).show(_SIZES, found.queues)
    if found.groups:
        click.echo()
        Form(found.now).show(_GROUPS, found.groups)
    if history:
        click.echo()
        Form(found.now).show(_DAYS, history)


@click.command()
@json_option
@click.option("--day", is_flag=True, help="The last 24 hours, instead of the last 60 minutes.")
@config_options
def metrics(source: ConfigOptions, as_json: bool, day: bool) -> None:
    """Show runs, failures and durations of each class.

    The jobs of the last 60 minutes on servers of pyworkers and of Sidekiq 8. processed counts all that ran;
    total is the time of those that did not fail, and p95 the duration that 95 % of these do not exceed, as
    far as a histogram of 26 durations tells. Over a day, the percentiles are those of jobs on servers of
    pyworkers.

    \b
    Example: pyworkers metrics --day
    """
    config = source.redis()
    ProcessSet(config).refresh()
    found = Metrics.fetch(Period.DAY if day else Period.HOUR, config)
    if as_json:
        print_json(found.as_dict())
    elif found.classes:
        Form(found.now).show(CLASS_METRICS.shown(), found.classes)
    else:
        click.echo(f"No job ran in the last {found.period.value}.")


def _as_dict(found: Stats) -> dict[str, Any]:
    """The numbers, queues and groups for JSON."""
    return {name: value for name, value in found.as_dict().items() if name != "servers"}


def _table(counts: dict[str, int]) -> str:
    names = max(map(len, counts))
    numbers = max(len(str(count)) for count in counts.values())
    return "\n".join(f"{name:<{names}}  {count:>{numbers}}" for name, count in counts.items())
