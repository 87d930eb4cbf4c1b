"""``pyworkers limits``: shows the limits over all servers, and resets them.

Run by people and scripts.
"""

from __future__ import annotations

import time

import click

from pyworkers.api import LimitSet
from pyworkers.api.limits import HOLDER, LIMIT
from pyworkers.cli.options import Source, config_options, listing_group
from pyworkers.cli.output.auditing import done, note
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_action, print_json, print_list
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import printable

_COLUMNS = LIMIT.shown("key", "allows", "used", "waiting")
_HOLDER_COLUMNS = HOLDER.shown("identity", "jid", "since")
_HELP = """Show the limits over all servers, with their use; reset them.

in use is the number of starts in the period of a rate, or of the jobs that hold a slot. A limit with by=
has a line for each of its values that is in use.

\b
Examples: pyworkers limits --json
          pyworkers limits reset stripe
"""


@click.command("list")
@json_option
@config_options
def list_(source: Source, as_json: bool) -> None:
    """Show the limits by name.

    \b
    Example: pyworkers limits list --json
    """
    found = list(LimitSet(source.redis()))
    if as_json:
        print_list(limit.as_dict() for limit in found)
    elif found:
        Form(time.time()).show(_COLUMNS, found)
    else:
        click.echo("No limits: no job with limits has asked for one.")


@click.command()
@click.argument("name")
@json_option
@config_options
@click.pass_context
def reset(ctx: click.Context, source: Source, name: str, as_json: bool) -> None:
    """Free all slots of the limit NAME, and forget its starts, with every value of its by=.

    Jobs that hold a slot continue, so more jobs than the limit allows may run for a while. The exit code is 1
    if the limit is not in use.

    \b
    Example: pyworkers limits reset stripe
    """
    count = LimitSet(source.redis()).reset(name)
    note(source.redis(), "limit.reset", name, done(count))
    if as_json:
        print_action("reset", count, name=name)
    else:
        click.echo(f"{printable(name)} is " + ("reset" if count else "not in use"), err=not count)
    if not count:
        ctx.exit(1)


@click.command("show")
@click.argument("key")
@json_option
@utc_option
@config_options
@click.pass_context
def show_(ctx: click.Context, source: Source, key: str, as_json: bool, times: Times) -> None:
    """Show the limit KEY (with by=, a colon and its value follow the name), and who holds it.

    The exit code is 1 if it is not in use.

    \b
    Example: pyworkers limits show tenant:7
    """
    found = LimitSet(source.redis()).find(key)
    if found is None:
        click.echo(f"{printable(key)} is not in use", err=True)
        ctx.exit(1)
    if as_json:
        print_json(found.as_dict())
        return
    form = Form(time.time(), times)
    form.show(_COLUMNS, [found.stats])
    if found.holders:
        click.echo()
        form.show(_HOLDER_COLUMNS, found.holders)


@click.command()
@click.argument("key")
@click.argument("member")
@json_option
@config_options
@click.pass_context
def release(ctx: click.Context, source: Source, key: str, member: str, as_json: bool) -> None:
    """Free the slot of one holder of the limit KEY; MEMBER is the field "member" of show --json.

    The job that holds the slot continues. The exit code is 1 if the slot is free already.

    \b
    Example: pyworkers limits release erp 'web1:7:3f|b4a577edbccf1d805744efa9 j1'
    """
    freed = LimitSet(source.redis()).release(key, member)
    note(source.redis(), "limit.release", f"{key} {member}", done(freed))
    if as_json:
        print_action("release", int(freed), key=key, member=member)
    else:
        what = "1 slot is free" if freed else "this slot is free already"
        click.echo(f"{printable(key)}: {what}", err=not freed)
    if not freed:
        ctx.exit(1)


limits = listing_group("limits", _HELP, {"list": list_, "show": show_, "reset": reset, "release": release})
