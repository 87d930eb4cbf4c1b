"""``pyworkers batches``: lists, shows and deletes batches, chains and groups.

Run by people and scripts.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import BatchSet
from pyworkers.api.batches import ACTIONS, BATCH, STATES
from pyworkers.cli.actions import commands
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import each, found_in
from pyworkers.cli.text import printable

_BATCHES = Records(
    BATCH.shown(
        "id", "kind", "state", "total", "pending", "done", "failed", "dead", "gone", "created_at",
        "description",
    ),
    "No batches.",
)  # fmt: skip
_HELP = """Show batches, chains and groups; delete them.

\b
total    members
pending  members that have not ended
failed   members that wait for a retry
gone     members that were dropped after a failure, cancelled or deleted,
         expired, are missing or were skipped; show counts each kind

A batch is open while members are added, and stays open if the program that added them has
died: its callbacks do not fire. A batch that has succeeded is kept for a day.

\b
Examples: pyworkers batches --json
          pyworkers batches show b4a577edbccf1d805744efa9
"""


@click.command("list")
@click.option("--tag", metavar="TAG", help="Only batches with this tag.")
@json_option
@utc_option
@redis_options
def list_(source: ConfigOptions, tag: str | None, as_json: bool, times: Times) -> None:
    """Show all batches, the newest first.

    \b
    Example: pyworkers batches list --json
    """
    targets = source.targets()
    read = targets.gather(lambda redis: [batch.status for batch in BatchSet(redis)])
    found = [one for one in each(read) if tag is None or tag in one.item.tags]
    _BATCHES.print(targets, found, as_json, Form(time.time(), times))


@click.command()
@click.argument("batch", metavar="ID")
@json_option
@utc_option
@redis_options
def show(source: ConfigOptions, batch: str, as_json: bool, times: Times) -> None:
    """Show a batch: its numbers, its inner batches, callbacks and members.

    Shows the first fifty batches inside it, and up to 100 members of each state.

    The exit code is 1 if there is no such batch.

    \b
    Example: pyworkers batches show b4a577edbccf1d805744efa9
    """
    located = source.targets().first(lambda redis: BatchSet(redis).view(batch))
    target, view = found_in(located, f"{printable(batch)}: unknown")
    found = BatchSet(target.config)
    about = {
        **target.as_dict(),
        **view.as_dict(),
        "members": {state: found.members(batch, state) for state in STATES},
    }
    if as_json:
        print_json(about)
        return
    now = time.time()
    for name, value in about.items():
        if name not in ("members", "callbacks", "inner"):
            moment = name.endswith("_at") and value is not None
            _line(name, times.full(value, now) if moment else _words(value))
    for inner in view.status.inner:
        words = f"{inner.kind} {inner.id}: {inner.state}, {inner.done:,} of {inner.total:,} done"
        counts = ((inner.failed, "failed"), (inner.dead, "dead"), (inner.gone, "gone"))
        more = "".join(f", {number:,} {word}" for number, word in counts if number)
        _line("inside", printable(f"{words}{more}"))
    for callback in view.callbacks:
        fired = "" if callback.fired_at is None else f", enqueued {times.full(callback.fired_at, now)}"
        words = f"{callback.event}: {callback.job_class} {callback.jid} in {callback.queue}"
        _line("callback", f"{printable(words)}{fired}")
    for state, jids in about["members"].items():
        _line(f"{state} members", " ".join(map(printable, jids)) or "-")


def _words(value: object) -> str:
    if isinstance(value, list):
        return printable(", ".join(value)) or "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value in (None, "") else printable(str(value))


def _line(name: str, text: str) -> None:
    click.echo(f"{name:<15} {text}")


batches = listing_group("batches", _HELP, {"list": list_, "show": show, **commands(ACTIONS)})
