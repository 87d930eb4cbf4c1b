"""``pyworkers queues``, ``pause`` and ``resume``: shows the queues, pauses them and resumes them.

Run by people and scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click

from pyworkers import api
from pyworkers.api import Search, Stats
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.target import admin_of
from pyworkers.cli.options import Source, config_options
from pyworkers.cli.output.auditing import done, noting
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_action, print_list
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.options import suggestion

_COLUMNS = QUEUE.shown("name", "size", "latency_s", "rate_per_min", "in_progress", "state")


@click.command()
@json_option
@config_options
def queues(source: Source, as_json: bool) -> None:
    """Show all queues: size, latency, rate, jobs in progress.

    size is the number of waiting jobs; latency the seconds that the next one has been waiting; jobs/min the
    jobs that ran on servers of pyworkers, over the last full minute and the current one. Jobs in progress
    are those of pyworkers, go-workers and go-workers2; --json lists their owners. For Sidekiq's
    running jobs, see `pyworkers workers`. A queue is unserved if no server that reports itself takes jobs
    from it (go-workers reports nothing).

    \b
    Example: pyworkers queues --json
    """
    admin = admin_of(source.redis())
    search = Search(admin.keys)
    stats = Stats.fetch(admin, search=search)
    found, now = stats.queues, stats.now
    if as_json:
        print_list(queue.as_dict(now) for queue in found)
    elif found:
        Form(now).show(_COLUMNS, found)
    else:
        click.echo("No queues: no job was ever enqueued, and no server is running.")
    if search.shortfall:
        click.echo(
            f"Jobs in progress in Go processes may be missing: {printable(search.shortfall)}", err=True
        )


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@json_option
@config_options
def pause(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Stop all servers from taking jobs from QUEUE.

    Jobs can still be enqueued; running jobs continue. pyworkers pauses within 2 seconds, Sidekiq Pro within
    10; Sidekiq without Pro and go-workers ignore the pause. A queue that no server serves is paused with a
    warning.

    \b
    Example: pyworkers pause mail
    """
    config = source.redis()
    for name in queues:
        try:
            check_queue_name(name)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    changed = _changed(config, "queue.pause", queues, api.Queue.pause)
    served = {name for process in api.ProcessSet(config) for name in process.queues}
    unserved = [name for name in queues if name not in served]
    if as_json:
        print_action("pause", len(changed), changed=changed, unserved=unserved)
        return
    for name in queues:
        click.echo(f"{name} is paused" + ("" if name in changed else " already"))
    for name in unserved:
        near = printable(suggestion(name, served))
        click.echo(f"No server serves {name}; {near or '`pyworkers queues` shows all.'}", err=True)


@click.command()
@click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)
@json_option
@config_options
def resume(source: Source, queues: tuple[str, ...], as_json: bool) -> None:
    """Let servers take jobs from a paused QUEUE again.

    In an ordered queue, a failed job at the head is retried now.

    \b
    Example: pyworkers resume mail
    """
    config = source.redis()
    changed = _changed(config, "queue.resume", queues, api.Queue.resume)
    if as_json:
        print_action("resume", len(changed), changed=changed)
        return
    for name in queues:
        click.echo(f"{printable(name)} " + ("is resumed" if name in changed else "was not paused"))


def _changed(
    config: RedisConfig, action: str, queues: Iterable[str], change: Callable[[api.Queue], bool]
) -> list[str]:
    """Change these queues; returns the names of those that were not so before."""
    changed = []
    for name in queues:
        with noting(config, action, name) as noted:
            is_changed = change(api.Queue(name, config))
            noted.end(done(is_changed))
        if is_changed:
            changed.append(name)
    return changed
