"""``pyworkers cancel``: cancels jobs, waiting or running. Run by people and scripts."""

from __future__ import annotations

from functools import partial

import click

from pyworkers.api import WorkSet
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.text import printable
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.store.cancel import Cancelled

_SENTENCES = {
    Cancelled.REMOVED: "removed before it started",
    Cancelled.RUNNING: "running; it is asked to end, and killed with its worker if it runs two seconds later",
    Cancelled.ELSEWHERE: "running in {where}: Sidekiq ends it if it is iterable; otherwise it continues",
    Cancelled.UNKNOWN: "not found; servers refuse to start it for one day",
}


@click.command()
@click.argument("jids", metavar="JID...", nargs=-1, required=True)
@json_option
@redis_options
@click.pass_context
def cancel(ctx: click.Context, source: ConfigOptions, jids: tuple[str, ...], as_json: bool) -> None:
    """Cancel a job, waiting or running.

    A waiting job is removed from its queue, the scheduled set or the retry set. A running job, on any
    server, is asked to end by JobCancelled; if it still runs two seconds later, its worker is killed. It is
    not retried.

    If Sidekiq runs the job, the command prints where. An iterable job (Sidekiq 7.3) ends as by Sidekiq's
    cancel!; any other job continues, because Sidekiq cannot end it.

    Exit code 1 if one of the jobs was not found, or runs in Sidekiq.

    \b
    Example: pyworkers cancel b4a577edbccf1d805744efa9
    """
    targets = source.targets()
    found: dict[str, Cancelled] = {}
    where: dict[str, str] = {}
    for jid in jids:
        cancelled = targets.first(partial(_cancel, jid))
        found[jid] = Cancelled.UNKNOWN if cancelled is None else cancelled[1]
        if cancelled is not None and cancelled[1] is Cancelled.ELSEWHERE:
            where[jid] = _where(WorkSet(cancelled[0].config), jid)
    if as_json:
        ended = sum(result in (Cancelled.REMOVED, Cancelled.RUNNING) for result in found.values())
        print_action("cancel", ended, results=found)
    else:
        for jid, result in found.items():
            click.echo(f"{printable(jid)}: {_SENTENCES[result].format(where=where.get(jid, ''))}")
    if {Cancelled.UNKNOWN, Cancelled.ELSEWHERE} & set(found.values()):
        ctx.exit(1)


def _cancel(jid: str, redis: RedisConfig) -> Cancelled | None:
    """Cancel a job in one Redis; None if it is not there."""
    with noting(redis, "job.cancel", jid) as noted:
        found = Client.from_config(redis).cancel(jid)
        noted.end(str(found))
    return None if found is Cancelled.UNKNOWN else found


def _where(works: WorkSet, jid: str) -> str:
    """The server and the thread that run a job, as text."""
    work = works.find_work(jid)
    return f"{printable(work.identity)}, thread {printable(work.thread)}" if work else "another server"
