"""``pyworkers check``: checks that a server can start here, and that Redis and the application are safe.

Run by people and scripts. It imports the application in a process of its own, and changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import asdict

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.cli.text import printable, table
from pyworkers.config.fields import Config, RedisConfig, mask_url
from pyworkers.config.groups import Only, spell_queues
from pyworkers.embedded import directory_of, server_binary
from pyworkers.errors import ConfigError
from pyworkers.server import rehearse
from pyworkers.server.plan import Group, plan
from pyworkers.server.proc import cores
from pyworkers.store.preflight import Finding, judge_app, judge_producers, judge_queues

_GROUPS = ("    group", "mode", "processes", "concurrency", "queues")


@click.command()
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker to check, e.g. tasks:worker.")
@config_options
def check(source: Source, app: str | None) -> None:
    """Check Redis and the application for unsafe settings.

    Reads the Redis server's version, role, eviction policy, persistence, clock and permissions; imports the
    application; compares its queues with those in Redis, and the Redis that it enqueues to in this
    environment with the server's. Prints the fix for each finding.

    Exit codes: 0 no findings, 1 findings, 2 configuration, 3 application import, 4 Redis unreachable.
    """
    config = source.load({"app": app})
    if config.app is None and source.path is not None:
        raise ConfigError(
            "no application", hint='set app = "module:attribute" in the configuration, or use --app'
        )
    if directory_of(config.redis.url) is not None:
        server_binary()
    findings = [*_of_app(config), *asyncio.run(_inspect(source.redis()))]
    for finding in findings:
        click.echo(f"{finding.code}: {finding.message}\n    {finding.fix}")
    if findings:
        click.get_current_context().exit(1)
    click.echo(f"{mask_url(config.redis.url)}: no findings")


def _of_app(config: Config) -> Iterator[Finding]:
    if config.app is None:
        click.echo("no application configured: only Redis is checked")
        return
    loaded = rehearse(config)
    work = plan(loaded.manifest, config, Only(), cores())
    click.echo(f"{config.app}: imported in {loaded.import_ms} ms, queues: {', '.join(work.queues)}")
    click.echo("\n".join(table(_GROUPS, map(_group_row, work.groups.values()), right=(2, 3))))
    yield from judge_app(config.app, loaded.import_ms, loaded.threads)
    yield from judge_producers(loaded.elsewhere, asdict(config.redis), config.path)
    from pyworkers.api import Stats

    queues = Stats.fetch(config.redis).queues
    waiting = {queue.name: queue.size for queue in queues}
    served = {queue.name for queue in queues if queue.served}
    findings, unused = judge_queues(work.queues, waiting, served)
    yield from findings
    for name in unused:
        click.echo(f"the queue {name} has a handler, but no job was ever enqueued to it")


def _group_row(group: Group) -> tuple[str, ...]:
    queues = spell_queues(tuple(group.queues) if group.strict else group.queues)
    sizes = map(str, (group.processes, group.concurrency))
    return f"    {printable(group.name)}", group.mode, *sizes, printable(queues)


async def _inspect(config: RedisConfig) -> list[Finding]:
    from pyworkers.protocol.keys import Keys
    from pyworkers.store.preflight import inspect
    from pyworkers.store.store import Store
    from pyworkers.store.transport.connections import connect_async

    store = Store(connect_async(config), Keys(config.namespace))
    try:
        return await store.arun(inspect(await store.redis_cli(), time.time))
    finally:
        await store.close()
