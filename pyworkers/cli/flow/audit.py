"""``pyworkers audit`` and ``undo``: who did what, and the way back. Run by people and scripts."""

from __future__ import annotations

import time

import click

from pyworkers.api import AuditLog
from pyworkers.api.audit import AUDIT_ACTION
from pyworkers.api.browse.undo import UNDO
from pyworkers.cli.actions import command
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import each

_ACTIONS = Records(
    AUDIT_ACTION.shown("at", "who", "source", "action", "target", "result"), "No action was taken yet."
)
_MOST = 1000
undo = command(UNDO)


@click.command()
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, _MOST), default=50, show_default=True, help="At most N."
)
@json_option
@utc_option
@redis_options
def audit(source: ConfigOptions, limit: int, as_json: bool, times: Times) -> None:
    """Show the actions of people, in the dashboard or by a command.

    Redis holds the last 1,000 actions. A program that calls pyworkers.api writes its own (AuditLog.record).

    \b
    Example: pyworkers audit --limit 10
    """
    targets = source.targets()
    found = each(targets.gather(lambda redis: AuditLog(redis).page(0, limit).actions))
    if targets.several:
        found = sorted(found, key=lambda one: one.item.at or 0.0, reverse=True)[:limit]
    _ACTIONS.print(targets, found, as_json, Form(time.time(), times))
