"""``pyworkers acl``: the least rights on Redis. Run by people; it neither reads nor changes anything."""

from __future__ import annotations

import click

from pyworkers.acl import Role, line
from pyworkers.cli.options import Source, config_options


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.WORKER.value,
    show_default=True,
    help="What the user is for: to run jobs, to enqueue them, to look and change, or only to look.",
)
@click.option("--user", metavar="NAME", help="Its name; pyworkers-ROLE if not given.")
@config_options
def acl(source: Source, role: str, user: str | None) -> None:
    """Print the least rights that a role needs on Redis.

    It is an ACL SETUSER command for redis-cli; put a password in the place of CHANGE-ME. The namespace is the
    configuration's, or that of --namespace.
    """
    namespace = source.load().redis.namespace
    click.echo(line(Role(role), namespace, user or f"pyworkers-{role}"))
