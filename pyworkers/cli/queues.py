"""``pyworkers queues``, ``pause`` and ``resume``: shows the queues, pauses them and resumes them.

Run by people and scripts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import click

from pyworkers.api import Queue, QueueStats, Search, Stats
from pyworkers.api.target import admin_of
from pyworkers.cli.listing import queue_state
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable, table
from pyworkers.protocol.keys import check_queue_name

_HEADER = ("queue", "size", "latency (s)", "in progress", "state")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of objects.")
@config_options
def queues(source: Source, as_json: bool) -> None:
    """Show all queues: size, latency, jobs in progress.

    size is the number of waiting jobs; latency the seconds that the next one has been waiting. Jobs in
    progress are those of pyworkers, go-workers and go-workers2; --json lists their owners. For Sidekiq's
    running jobs, see `pyworkers workers`. A queue is unserved if no server that reports itself takes jobs
    from it (go-workers reports nothing).

    \b
    Example: pyworkers queues --json
    """
    admin = admin_of(source.redis())
    search = Search(admin.keys)
    found = Stats.fetch(admin, search=search).queues
    now = time.time()
    click.echo(json.dumps([queue.as_dict(now) for queue in found]) if as_json else _shown(found, now))
    if search.shortfall:
        click.echo(
            f"Jobs in progress in Go processes may be missing: {printable(search.shortfall)}", err=True
        )


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
def pause(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Stop all servers from taking jobs from QUEUE.

    Jobs can still be enqueued; running jobs continue. pyworkers pauses within 2 seconds, Sidekiq Pro within
    10; Sidekiq without Pro and go-workers ignore the pause.

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


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@config_options
def resume(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Let servers take jobs from a paused QUEUE again.

    In an ordered queue, a failed job at the head is retried now.

    \b
    Example: pyworkers resume mail
    """
    config = source.redis()
    changed = [name for name in queues if Queue(name, config).resume()]
    if as_json:
        click.echo(json.dumps({"action": "resume", "changed": changed}))
        return
    for name in queues:
        click.echo(f"{printable(name)} " + ("is resumed" if name in changed else "was not paused"))


def _shown(found: Sequence[QueueStats], now: float) -> str:
    if not found:
        return "No queues: no job was ever enqueued, and no server is running."
    return "\n".join(table(_HEADER, [_row(queue, now) for queue in found], right=(1, 2, 3)))


def _row(queue: QueueStats, now: float) -> tuple[str, ...]:
    numbers = str(queue.size), f"{queue.latency_s(now):.1f}", str(queue.in_progress)
    return printable(queue.name), *numbers, queue_state(queue)
