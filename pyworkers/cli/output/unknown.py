"""Warnings of jobs that no running server seems to know, printed by the commands that enqueue.

Run by the commands. Reads only; the job is enqueued in any case.
"""

from __future__ import annotations

from contextlib import suppress

import click

from pyworkers.api import ProcessSet
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.options import suggestion


def warn_of_unknown(config: RedisConfig, queue: str, job_class: str) -> None:
    """Say so if no server has the queue, but one like it, or if no server of the queue knows the class."""
    with suppress(PyworkersError):
        # Users of the role `client` may not read the servers.
        _warn(config, queue, job_class)


def _warn(config: RedisConfig, queue: str, job_class: str) -> None:
    servers = ProcessSet(config)
    live = list(servers)
    served = {name for server in live for name in server.queues}
    # Any other queue may belong to a program that does not report itself, such as go-workers.
    if queue not in served and (near := suggestion(queue, served)):
        click.echo(f"No server serves {queue}; {printable(near)}", err=True)
        return
    serving = {server.identity for server in live if queue in server.queues}
    ours = [one for one in servers.declared() if one.name in serving]
    known = {name for one in ours for name in one.known}
    takes_all = any(one.classes.get(queue, ()) is None for one in ours)
    # A server of another program, or of another version, does not describe its classes.
    if not ours or takes_all or job_class in known or len(ours) < len(serving):
        return
    near = suggestion(job_class, known)
    hint = f"; {near}" if near else ""
    click.echo(f"No server of the queue {queue} knows the class {printable(job_class)}{hint}", err=True)
