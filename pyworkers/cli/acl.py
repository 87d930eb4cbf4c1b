"""``pyworkers acl``: prints the minimal Redis ACL of a role. Run by people; connects only to sentinels."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import click

from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.params import reads
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.store.acl import Role, Version, left_open, line

_VERSIONS = [version.value for version in Version]


def _user(name: str) -> str:
    """The name of a user, as redis-cli reads it. Raises ValueError."""
    if not name or not name.isprintable() or not {" ", '"', "'"}.isdisjoint(name):
        raise ValueError(f"{name!r} cannot be a Redis user: use a name without white space and quotes")
    return name


@click.command()
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.WORKER.value,
    show_default=True,
    help="What the Redis user may do: run jobs, enqueue them, administer, or only read.",
)
@click.option(
    "--user",
    metavar="NAME",
    callback=reads(_user),
    help="Name of the Redis user, new or not.  [default: pyworkers-ROLE]",
)
@click.option(
    "--oldest",
    "version",
    type=click.Choice(_VERSIONS),
    default=Version.SEVEN.value,
    show_default=True,
    help="The oldest Redis that reads it; 6.2 grants each command on each key.",
)
@json_option
@redis_options
def acl(source: ConfigOptions, role: str, user: str | None, version: str, as_json: bool) -> None:
    """Print the minimal Redis ACL of a role.

    The output is an ACL SETUSER command for redis-cli; replace CHANGE-ME with a password. The namespace comes
    from --namespace or the configuration; with several Redis servers, --redis chooses one. stderr has the
    rights beyond the role, and the redis-cli command that connects.

    \b
    Example: pyworkers acl --role client --namespace shop:
    """
    if source.redis_name is not None and source.redis_name in _VERSIONS:
        # The former meaning of --redis; no table [redis.NAME] can have such a name.
        version, source = source.redis_name, replace(source, redis_name=None)
    redis = source.redis_configured()
    name = user or f"pyworkers-{role}"
    redis_cli, database = asyncio.run(_place(redis))
    command = line(Role(role), redis.namespace, name, Version(version), database=database)
    besides = left_open(Role(role), redis.namespace, Version(version))
    if as_json:
        print_json(
            {"role": role, "user": name, "command": command, "redis_cli": redis_cli, "left_open": besides}
        )
        return
    click.echo(command)
    for sentence in besides:
        click.echo(f"# {sentence}", err=True)
    click.echo(f"Run it in {redis_cli}", err=True)


async def _place(config: RedisConfig) -> tuple[str, int]:
    """The command line of redis-cli, and the number of the database."""
    from pyworkers.store.transport.address import redis_cli
    from pyworkers.store.transport.connections import connect_async

    async with connect_async(config) as redis:
        database = int(redis.connection_pool.connection_kwargs.get("db") or 0)
        try:
            return await redis_cli(redis), database
        except PyworkersError:
            return "redis-cli, connected to the primary (no sentinel names it)", database
