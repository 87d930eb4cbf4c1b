"""``pyworkers move``: moves the jobs of a queue to another Redis of the same program.

Run by people, when the queue gets another Redis in the configuration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import click

from pyworkers.api.actions import result_of
from pyworkers.api.moving import QueueMove
from pyworkers.cli.bulk import ask, check_terminal, yes_option
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.params import parse_queue, reads
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.text import counted


@click.command()
@click.argument("queue", callback=reads(parse_queue))
@click.option("--from", "source_name", required=True, metavar="REDIS", help="Redis that has the jobs.")
@click.option("--to", "target_name", required=True, metavar="REDIS", help="Redis that the jobs are moved to.")
@click.option("--back", is_flag=True, help="Put the parked jobs of an unfinished move back instead.")
@click.option("--dry-run", is_flag=True, help="Print what would move and what would stay; change nothing.")
@yes_option
@json_option
@config_options
def move(
    source: ConfigOptions,
    queue: str,
    source_name: str,
    target_name: str,
    back: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move the jobs of QUEUE to another Redis.

    Waiting jobs, scheduled jobs and retries are moved. REDIS is `default`, or a NAME of
    the sections [redis.NAME]. First write `redis = "NAME"` into the section of the queue, and restart or
    reload servers and producers: then new jobs go there. Jobs keep their bytes, their order and their times;
    their status, history and checkpoint move with them. Each arrives once: if the command is killed or a
    Redis is unreachable, run the same command to continue. Running jobs end where they are, and dead ones
    stay; run it again for the retries of running jobs.

    Jobs with a lock, members of batches, steps of chains and jobs for whose result a program waits stay, and
    so do all jobs of an ordered queue, because these features work within one Redis.

    While jobs are on their way, up to 200 are parked in the first Redis. If the other one is permanently
    lost, --back puts them into their queue again, except the jobs that have arrived there. It is
    refused if the other Redis cannot say whether they have arrived. With --yes they are put back then, and
    may run twice.

    \b
    Example: pyworkers move reports --from default --to archive --config workers.toml

    Exit code 1 if jobs stay, or if it is refused.
    """
    start, end = source.redis_named(source_name), source.redis_named(target_name)
    moving = QueueMove(queue, start, end, name=target_name)
    if back:
        if dry_run:
            raise click.UsageError("--dry-run is not for --back.")
        _give_back(start, moving, f"{queue}: back to {source_name}", yes=yes, as_json=as_json)
        return
    moving.check()
    if (home := source.home_of(queue)) != target_name:
        text = f"the configuration has {queue} on {home}: no server with it takes jobs from {target_name}"
        click.echo(f"Warning: {printable(text)}", err=True)
    if dry_run or not yes:
        _look(moving, f"{queue} from {source_name} to {target_name}", asks=not dry_run)
    if not dry_run:
        _move(start, moving, f"{queue}: {source_name} to {target_name}")
    _tell(moving, dry_run, {"from": source_name, "to": target_name} if as_json else None)
    if moving.counts.left and not dry_run:
        click.get_current_context().exit(1)


def _look(moving: QueueMove, title: str, *, asks: bool) -> None:
    """Count the jobs, and ask before they are moved."""
    if asks:
        check_terminal()
    _run(moving, moving.look(), "Looking")
    if asks and moving.counts.total:
        ask(f"Move {counted(moving.counts.total, 'job')} of {title}?")


def _move(start: RedisConfig, moving: QueueMove, title: str) -> None:
    with noting(start, "queue.move", title) as noted:
        noted.has_changed(0)
        try:
            _run(moving, moving.move(), "Moving")
        finally:
            noted.has_changed(moving.counts.total)
        noted.end(result_of(moving.counts.total))
    _tell_odd(moving, moving.counts.odd)


def _give_back(start: RedisConfig, moving: QueueMove, title: str, *, yes: bool, as_json: bool) -> None:
    with noting(start, "queue.move", title) as noted:
        noted.has_changed(0)
        found = moving.back(unchecked=yes)
        noted.end(result_of(found.back))
    if as_json:
        print_action("move", found.back, queue=moving.queue, back=found.back, arrived=found.arrived)
        _tell_odd(moving, found.odd)
        return
    click.echo(f"gave back {counted(found.back, 'job')}")
    _tell_odd(moving, found.odd)
    if found.arrived:
        click.echo(f"{counted(found.arrived, 'job')} had arrived there", err=True)


def _tell_odd(moving: QueueMove, number: int) -> None:
    if number:
        entries = "1 entry" if number == 1 else f"{number:,} entries"
        text = (
            f"{entries} in the list of parked jobs had no place of a job: put into the queue {moving.queue}"
        )
        click.echo(printable(text), err=True)


def _run(moving: QueueMove, steps: Iterator[int], label: str) -> None:
    """With a progress bar if stderr is a terminal."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=moving.size, label=label, file=sys.stderr, hidden=hidden) as bar:
        for number in steps:
            bar.update(number)


def _tell(moving: QueueMove, dry_run: bool, about: Mapping[str, str] | None) -> None:
    """Print the numbers: as JSON, with these facts ``about`` the move, or in words."""
    counts = moving.counts
    if about is not None:
        number = 0 if dry_run else counts.total
        print_action("move", number, queue=moving.queue, **about, **counts.as_dict(), dry_run=dry_run)
        return
    places = ", ".join(f"{_PLACES[place]} {number:,}" for place, number in counts.moved.items() if number)
    verb = "would move" if dry_run else "moved"
    click.echo(f"{verb} {counted(counts.total, 'job')}{f' ({places})' if places else ''}")
    for reason, number in sorted(counts.left.items()):
        stays = "stays" if number == 1 else "stay"
        click.echo(f"{counted(number, 'job')} {stays}: {printable(reason)}", err=True)


_PLACES = {"queue": "waiting", "schedule": "scheduled", "retry": "for a retry"}
