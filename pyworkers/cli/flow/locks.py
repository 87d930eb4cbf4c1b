"""``pyworkers locks``: lists and releases the locks of unique jobs.

Run by people and scripts.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import LockSet
from pyworkers.api.locks import LOCK, RELEASE
from pyworkers.cli.actions import perform, show
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option

_HELP = """Show the locks of unique jobs; release them.

While a lock is held, the same job is a duplicate: enqueueing it returns the id (jid) of the job that
holds the lock. Listing scans the names of all keys in Redis.

\b
Examples: pyworkers locks --class charge
          pyworkers locks release b4a577edbccf1d805744efa9
"""
_LOCKS = Records(LOCK.shown(), "No locks: no unique job is enqueued or running.")


@click.command("list")
@click.option("--class", "job_class", metavar="CLASS", help="Only locks of jobs of this class.")
@click.option("--queue", metavar="QUEUE", help="Only locks of jobs of this queue.")
@json_option
@utc_option
@redis_options
def list_(
    source: ConfigOptions, job_class: str | None, queue: str | None, as_json: bool, times: Times
) -> None:
    """Show the locks, in any order; one that is released meanwhile may be missing.

    \b
    Example: pyworkers locks list --class charge
    """
    targets = source.targets()
    found = (
        one
        for target in targets
        for one in targets.rows(target, LockSet(target.config))
        if job_class in (None, one.item.job_class) and queue in (None, one.item.queue)
    )
    _LOCKS.print(targets, found, as_json, Form(time.time(), times))


@click.command(help=RELEASE.command)
@click.argument("names", metavar="KEY|JID...", nargs=-1, required=True)
@json_option
@redis_options
def release(source: ConfigOptions, names: tuple[str, ...], as_json: bool) -> None:
    """Release the locks that have one of the names."""
    targets = source.targets()
    found = [(name, LockSet(target.config).find(name)) for name in names for target in targets]
    rows = {lock.key: lock.as_dict() for _, locks in found for lock in locks}
    held = [{"key": lock.key, "jid": lock.jid} for _, locks in found for lock in locks]
    known = {name for name, locks in found if locks}
    gone = [{"key": name} for name in names if name not in known]
    outcomes = [perform(targets, RELEASE, given) for given in held + gone]
    released = [rows[outcome.given["key"]] for outcome in outcomes if not outcome.nothing]
    show(outcomes, as_json, released=released)


locks = listing_group("locks", _HELP, {"list": list_, "release": release})
