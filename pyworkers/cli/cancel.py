"""``pyworkers cancel``: cancels jobs, waiting or running. Run by people and scripts."""

from __future__ import annotations

import click

from pyworkers.api import WorkSet
from pyworkers.cli.options import ConfigOptions, config_options
from pyworkers.cli.output.auditing import noting
from pyworkers.cli.output.records import json_option, print_action
from pyworkers.cli.text import printable
from pyworkers.client import Client
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
@config_options
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
    config = source.redis()
    client = Client.from_config(config)
    found: dict[str, Cancelled] = {}
    for jid in jids:
        with noting(config, "job.cancel", jid) as noted:
            found[jid] = client.cancel(jid)
            noted.end(str(found[jid]))
    if as_json:
        ended = sum(result in (Cancelled.REMOVED, Cancelled.RUNNING) for result in found.values())
        print_action("cancel", ended, results=found)
    else:
        for jid, result in found.items():
            where = _where(WorkSet(config), jid) if result is Cancelled.ELSEWHERE else ""
            click.echo(f"{printable(jid)}: {_SENTENCES[result].format(where=where)}")
    if {Cancelled.UNKNOWN, Cancelled.ELSEWHERE} & set(found.values()):
        ctx.exit(1)


def _where(works: WorkSet, jid: str) -> str:
    """The server and the thread that run a job, as text."""
    work = works.find_work(jid)
    return f"{printable(work.identity)}, thread {printable(work.thread)}" if work else "another server"
