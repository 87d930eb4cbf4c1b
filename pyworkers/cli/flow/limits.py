"""``pyworkers limits``: shows the limits over all servers, and resets them.

Run by people and scripts.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import LimitSet
from pyworkers.api.limits import ACTIONS, HOLDER, LIMIT
from pyworkers.cli.actions import commands
from pyworkers.cli.options import ConfigOptions, listing_group, redis_options
from pyworkers.cli.output.listing import Form, Records
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.targets import found_in
from pyworkers.cli.text import printable

_LIMITS = Records(
    LIMIT.shown("key", "allows", "used", "waiting"), "No limits: no job with limits has asked for one."
)
_HOLDER_COLUMNS = HOLDER.shown("identity", "jid", "since")
_HELP = """Show the limits over all servers, with their use; reset them.

in use is the number of starts in the period of a rate, or of the jobs that hold a slot. A limit with by=
has one line for each of its values in use.

\b
Examples: pyworkers limits --json
          pyworkers limits reset stripe
"""


_LIST = _LIMITS.command(
    "list",
    LimitSet,
    """Show the limits by name.

    \b
    Example: pyworkers limits list --json
    """,
    has_times=False,
)


@click.command("show")
@click.argument("key")
@json_option
@utc_option
@redis_options
def show_(source: ConfigOptions, key: str, as_json: bool, times: Times) -> None:
    """Show the limit KEY, and the jobs that hold it.

    With by=, KEY is the name, a colon and the value. The exit code is 1 if the limit is not in use.

    \b
    Example: pyworkers limits show tenant:7
    """
    located = source.targets().first(lambda redis: LimitSet(redis).find(key))
    target, found = found_in(located, f"{printable(key)} is not in use")
    if as_json:
        print_json({**target.as_dict(), **found.as_dict()})
        return
    form = Form(time.time(), times)
    form.show(_LIMITS.columns, [found.stats])
    if found.holders:
        click.echo()
        form.show(_HOLDER_COLUMNS, found.holders)


limits = listing_group("limits", _HELP, {"list": _LIST, "show": show_, **commands(ACTIONS)})
