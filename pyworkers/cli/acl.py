"""``pyworkers acl``: the least rights on Redis. Run by people; it changes nothing and asks only sentinels."""

from __future__ import annotations

import asyncio

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.store.acl import Role, line


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
    configuration's, or that of --namespace. How to reach its Redis is said on the standard error stream.
    """
    redis = source.load().redis
    click.echo(line(Role(role), redis.namespace, user or f"pyworkers-{role}"))
    click.echo(f"Enter it in {asyncio.run(_redis_cli(redis))}", err=True)


async def _redis_cli(config: RedisConfig) -> str:
    from pyworkers.store.transport.address import redis_cli
    from pyworkers.store.transport.connections import connect_async

    async with connect_async(config) as redis:
        try:
            return await redis_cli(redis)
        except PyworkersError:
            return "redis-cli, connected to the primary (no sentinel names it)"
