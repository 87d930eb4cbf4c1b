"""``pyworkers check``: whether this Redis is safe to keep jobs in. Run by people and scripts; only reads."""

from __future__ import annotations

import asyncio
import time

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.config import RedisConfig, mask_url
from pyworkers.preflight import Finding


@click.command()
@config_options
def check(source: Source) -> None:
    """Say what is unsafe about the Redis server.

    Looks at its version, role, eviction policy, persistence and clock, and names the command that mends each
    finding. Exits with 1 if there is one.
    """
    config = source.redis()
    findings = asyncio.run(_inspect(config))
    for finding in findings:
        click.echo(f"{finding.code}: {finding.message}\n    {finding.fix}")
    if findings:
        click.get_current_context().exit(1)
    click.echo(f"{mask_url(config.url)}: nothing to mend")


async def _inspect(config: RedisConfig) -> list[Finding]:
    from pyworkers.store.connection import connect_async
    from pyworkers.store.inspection import inspect

    redis = connect_async(config)
    try:
        return await inspect(redis, time.time)
    finally:
        await redis.aclose()
