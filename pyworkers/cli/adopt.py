"""``pyworkers adopt``: returns what a dead process of another program has left to its queues.

Run by people, once, when that process is gone for good.
"""

from __future__ import annotations

import time
from functools import partial

import click

from pyworkers.api.actions import result_of
from pyworkers.api.foreign import PROGRAMS, ForeignJobs, ForeignProcess
from pyworkers.cli.bulk import ask, check_terminal, yes_option
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.params import parse_queue, reads
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.text import counted

# In this time, a live process of go-workers most probably ends a job or takes one: it shows nothing else.
_WATCH_S = 10.0


@click.command()
@click.argument("program", type=click.Choice(PROGRAMS))
@click.option(
    "--process", required=True, metavar="NAME", help="Name of the process in the names of its lists."
)
@click.option(
    "-q",
    "--queue",
    "names",
    multiple=True,
    metavar="NAME",
    callback=reads(parse_queue),
    help="Only this queue; may be repeated. Without it, the names of all keys are searched.",
)
@click.option("--dry-run", is_flag=True, help="Print the lists; change nothing.")
@yes_option
@json_option
@redis_options
def adopt(
    source: ConfigOptions,
    program: str,
    process: str,
    names: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Return the jobs of a dead foreign process to their queues.

    go-workers and go-workers2 keep running jobs in queue:QUEUE:NAME:inprogress, Sidekiq Pro in
    queue:sq|NAME|QUEUE. If a process never starts again under its name, these jobs stay there forever;
    `pyworkers check` lists them. They run again, on any server of the queue: be sure that the process is
    dead, because go-workers has no heartbeat. Refused while the process has a heartbeat (go-workers2,
    Sidekiq), and if a list changes within ten seconds. The jobs keep their bytes and their order.

    \b
    Example: pyworkers adopt go-workers --process worker-1

    Exit code 1 if there are no jobs, or if it is refused.
    """
    located = source.targets().first(partial(_left, program, process, names))
    if located is None:
        hint = "`pyworkers check` lists the processes that have left jobs"
        raise PyworkersError(f"no list of the {program} process {printable(process)} has jobs", hint=hint)
    config, (dead, jobs) = located[0].config, located[1]
    if not (yes or dry_run):
        check_terminal()
    total = sum(map(len, jobs.values()))
    if dry_run:
        moved = _counted(jobs)
    else:
        _watch(dead, jobs)
        if not yes:
            ask(f"Return {counted(total, 'job')} of {printable(process)} to {_queues(_counted(jobs))}?")
        moved = _adopt(config, dead, jobs)
    if as_json:
        number = 0 if dry_run else sum(moved.values())
        print_action("adopt", number, process=process, queues=moved, dry_run=dry_run)
    elif dry_run:
        click.echo(f"would return {counted(total, 'job')} to {_queues(moved)}")
    else:
        returned = counted(sum(moved.values()), "job")
        click.echo(f"{printable(process)}: {returned} returned to {_queues(moved)}")


def _left(
    program: str, process: str, names: tuple[str, ...], redis: RedisConfig
) -> tuple[ForeignProcess, ForeignJobs] | None:
    """The process with its jobs in a Redis; None if it has none there."""
    dead = ForeignProcess(program, process, redis)
    dead.check_silent()
    lists = dead.lists(names)
    dead.check_silent(lists)
    jobs = dead.jobs(lists)
    return (dead, jobs) if jobs else None


def _watch(dead: ForeignProcess, jobs: ForeignJobs) -> None:
    """Raise PyworkersError if a list changes within ``_WATCH_S``: then its process lives."""
    click.echo(f"Watching for {_WATCH_S:g} s whether the lists change …", err=True)
    time.sleep(_WATCH_S)
    later = dead.jobs(list(jobs))
    if changed := [item for item, found in jobs.items() if later.get(item) != found]:
        key = printable(changed[0].key)
        raise PyworkersError(f"{key} has changed: its process works", hint="stop that process first")


def _adopt(config: RedisConfig, dead: ForeignProcess, jobs: ForeignJobs) -> dict[str, int]:
    moved: dict[str, int] = {}
    with noting(config, "process.adopt", dead.name) as noted:
        noted.has_changed(0)
        for queue, number in dead.adopt(jobs):
            moved[queue] = number
            noted.has_changed(sum(moved.values()))
        noted.end(result_of(sum(moved.values())))
    return moved


def _counted(jobs: ForeignJobs) -> dict[str, int]:
    return {item.queue: len(found) for item, found in jobs.items()}


def _queues(numbers: dict[str, int]) -> str:
    return ", ".join(f"{printable(queue)} ({number})" for queue, number in numbers.items())
