"""``pyworkers locks``: lists and releases the locks of unique jobs.

Run by people and scripts.
"""

from __future__ import annotations

import time
from itertools import chain

import click

from pyworkers.api import LockSet
from pyworkers.api.locks import LOCK, RELEASE
from pyworkers.cli.actions import perform, show
from pyworkers.cli.options import ConfigOptions, config_options, listing_group
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_list
from pyworkers.cli.output.times import Times, utc_option

_HELP = """Show the locks of unique jobs; release them.

While a lock is held, the same job is a duplicate: enqueueing it returns the id (jid) of the job that
holds the lock. Listing scans the names of all keys in Redis.

\b
Examples: pyworkers locks --class charge
          pyworkers locks release b4a577edbccf1d805744efa9
"""


@click.command("list")
@click.option("--class", "job_class", metavar="CLASS", help="Only locks of jobs of this class.")
@click.option("--queue", metavar="QUEUE", help="Only locks of jobs of this queue.")
@json_option
@utc_option
@config_options
def list_(
    source: ConfigOptions, job_class: str | None, queue: str | None, as_json: bool, times: Times
) -> None:
    """Show the locks, in no order; one that is released meanwhile may be missing.

    \b
    Example: pyworkers locks list --class charge
    """
    found = (
        lock
        for lock in LockSet(source.redis())
        if job_class in (None, lock.job_class) and queue in (None, lock.queue)
    )
    first = next(found, None)
    rows = found if first is None else chain([first], found)
    if as_json:
        print_list(lock.as_dict() for lock in rows)
    elif first is None:
        click.echo("No locks: no unique job is enqueued or running.")
    else:
        Form(time.time(), times).show(LOCK.shown(), rows)


@click.command(help=RELEASE.command)
@click.argument("names", metavar="KEY|JID...", nargs=-1, required=True)
@json_option
@config_options
def release(source: ConfigOptions, names: tuple[str, ...], as_json: bool) -> None:
    """Release the locks that have one of the names."""
    config = source.redis()
    found = [(name, LockSet(config).find(name)) for name in names]
    rows = {lock.key: lock.as_dict() for _, locks in found for lock in locks}
    held = [{"key": lock.key, "jid": lock.jid} for _, locks in found for lock in locks]
    gone = [{"key": name} for name, locks in found if not locks]
    outcomes = [perform(config, RELEASE, given) for given in held + gone]
    released = [rows[outcome.given["key"]] for outcome in outcomes if not outcome.nothing]
    show(outcomes, as_json, released=released)


locks = listing_group("locks", _HELP, {"list": list_, "release": release})
