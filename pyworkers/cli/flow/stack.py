"""``pyworkers stack``: where a running job is, and the memory of its process. Run by people and scripts."""

from __future__ import annotations

import time
from functools import partial

import click

from pyworkers.api import JobStack, WorkSet
from pyworkers.api.running import JOB_STACK, STACK
from pyworkers.cli.actions import perform
from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.listing import Form
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.times import Times, utc_option
from pyworkers.cli.text import printable, printable_lines
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.stacks import LATE_S
from pyworkers.store.admin import Admin
from pyworkers.store.browse.tracks import Held, read_held

_APART_S = 0.05
_FACTS = JOB_STACK.shown("server", "pid", "state", "rss_kb", "peak_kb", "at")


@click.command()
@click.argument("jid", metavar="JID")
@json_option
@utc_option
@redis_options
@click.pass_context
def stack(ctx: click.Context, source: ConfigOptions, jid: str, as_json: bool, times: Times) -> None:
    """Show the stack of a running job, and the memory of its process.

    The server of the job may be on any host. It can show the stack even while the job hangs in a call, or in
    C code that does not release the GIL. The job continues.

    Exit code 1 if the job does not run, or if there is no stack after ten seconds.

    \b
    Example: pyworkers stack b4a577edbccf1d805744efa9
    """
    targets = source.targets()
    located = targets.first(partial(_held, jid))
    if located is None:
        raise PyworkersError(
            f"the job {printable(jid)} does not run",
            hint=f"`pyworkers status {printable(jid)}` shows where it is.",
        )
    target, held = located
    asked = perform(targets, STACK, {"jid": jid, "server": held.identity, "queue": held.queue})
    if asked.nothing:
        raise PyworkersError(asked.words(printable))
    found = _answer(WorkSet(target.config), jid)
    if as_json:
        print_json({**target.as_dict(), **found.as_dict()})
    elif found.answered:
        click.echo("\n".join(Form(time.time(), times).facts(_FACTS, found)))
        if found.text:
            click.echo("\n" + printable_lines(found.text))
    if found.problem or not found.answered:
        words = found.problem or "The server did not answer: it is gone, or has an earlier pyworkers."
        click.echo(printable(words), err=True)
    if not found.text:
        ctx.exit(1)


def _held(jid: str, redis: RedisConfig) -> Held | None:
    admin = Admin(redis)
    return admin.run(read_held(admin.keys, jid))


def _answer(works: WorkSet, jid: str) -> JobStack:
    """The answer; the request if there is none in time."""
    deadline, found = time.monotonic() + LATE_S, None
    while (found is None or not found.answered) and time.monotonic() < deadline:
        time.sleep(_APART_S)
        found = works.stack(jid)
    return found or JobStack(jid)
