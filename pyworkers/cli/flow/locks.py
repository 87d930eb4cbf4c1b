"""``pyworkers locks``: lists and releases the locks of unique jobs.

Run by people and scripts.
"""

from __future__ import annotations

import time
from itertools import chain

import click

from pyworkers.api import Lock, LockSet
from pyworkers.api.locks import LOCK
from pyworkers.cli.options import Source, config_options, listing_group
from pyworkers.cli.output.auditing import done, noting
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_action, print_list
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import printable

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
def list_(source: Source, job_class: str | None, queue: str | None, as_json: bool, times: Times) -> None:
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


@click.command()
@click.argument("names", metavar="KEY|JID...", nargs=-1, required=True)
@json_option
@config_options
@click.pass_context
def release(ctx: click.Context, source: Source, names: tuple[str, ...], as_json: bool) -> None:
    """Release locks, so that the same jobs can be enqueued again; the jobs themselves stay.

    KEY is a digest, or the unique_key of the job. The exit code is 1 if one of them is not held.

    \b
    Example: pyworkers locks release 49a64717d5d4cb19952e6eac2946415c
    """
    locks = LockSet(source.redis())
    released: dict[str, list[Lock]] = {}
    for name in names:
        freed = released[name] = []
        with noting(source.redis(), "lock.release", name) as noted:
            for lock in locks.find(name):
                if lock.release():
                    freed.append(lock)
                    noted.end(done(len(freed)))
            noted.end(done(len(freed)))
    if as_json:
        rows = [lock.as_dict() for found in released.values() for lock in found]
        print_action("release", len(rows), released=rows)
    else:
        for name, found in released.items():
            for lock in found:
                click.echo(f"{printable(lock.job_class)} {lock.digest}: released from {printable(lock.jid)}")
            if not found:
                click.echo(f"{printable(name)}: not held", err=True)
    if not all(released.values()):
        ctx.exit(1)


locks = listing_group("locks", _HELP, {"list": list_, "release": release})
