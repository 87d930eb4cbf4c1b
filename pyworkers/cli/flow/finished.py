"""``pyworkers finished``: the last jobs that have ended; enqueues one of them again.

Run by people and scripts.
"""

from __future__ import annotations

import time
from itertools import islice

import click

from pyworkers.api.finished import ACTIONS, FINISHED, FinishedFilter, FinishedSet
from pyworkers.cli.actions import commands
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option

_HELP = """Show the last jobs that have ended; enqueue one again.

Jobs are kept if their class, their queue or the server has keep: with keep=(1000, 86400), about the last
1000, none older than a day.

\b
Examples: pyworkers finished --class charge
          pyworkers finished again '1795225197500-0 server'
"""
_FINISHED = Records(
    FINISHED.shown("jid", "class", "queue", "state", "ended_at", "duration", "attempts", "error"),
    "No finished jobs: none are kept without keep=(1000, 86400), or none meets the conditions.",
)


@click.command("list")
@click.option("--class", "job_class", metavar="CLASS", default="", help="Only jobs of this class.")
@click.option("--queue", metavar="QUEUE", default="", help="Only jobs of this queue.")
@click.option(
    "--state", metavar="STATE", default="", help="Only jobs that ended in this state, e.g. done, dead."
)
@click.option("--jid", metavar="JID", default="", help="Only the job with this id.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1), default=100, show_default=True, help="At most N."
)
@json_option
@utc_option
@redis_options
def list_(
    source: ConfigOptions,
    job_class: str,
    queue: str,
    state: str,
    jid: str,
    limit: int,
    as_json: bool,
    times: Times,
) -> None:
    """Show finished jobs, the latest first.

    \b
    Example: pyworkers finished list --class charge --state dead
    """
    targets, asked = source.targets(), FinishedFilter(job_class, queue, state, jid)
    found = (
        one for target in targets for one in targets.rows(target, FinishedSet(target.config).matching(asked))
    )
    _FINISHED.print(targets, islice(found, limit), as_json, Form(time.time(), times))


finished = listing_group("finished", _HELP, {"list": list_, **commands(ACTIONS)})
