"""``pyworkers check``: checks that a server can start here, and that Redis and the application are safe.

Run by people and scripts. It imports the application in its own process, and changes nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pyworkers.cli.options import ConfigOptions, redis_options
from pyworkers.cli.output.records import json_option, print_json
from pyworkers.cli.output.tables import TableColumn, show
from pyworkers.cli.targets import Located, Targets, each
from pyworkers.cli.text import printable, printable_lines
from pyworkers.config.checks import mask_url
from pyworkers.config.directories import is_directory
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.groups import Only, spell_queues
from pyworkers.config.stores import Stores
from pyworkers.embedded import directory_of, server_binary
from pyworkers.errors import ConfigError
from pyworkers.server import rehearse
from pyworkers.server.plan import Group, plan
from pyworkers.server.proc import cores
from pyworkers.store.flow.classes import Declared
from pyworkers.store.flow.servers import Uses
from pyworkers.store.preflight import (
    Finding,
    judge_app,
    judge_classes,
    judge_fields,
    judge_files,
    judge_left,
    judge_moves,
    judge_password,
    judge_producers,
    judge_queues,
    judge_servers,
    judge_wire,
)

if TYPE_CHECKING:
    from pyworkers.api import Stats

_GROUPS = (
    TableColumn("    group", cut=2),
    TableColumn("mode"),
    TableColumn("processes", right=True),
    TableColumn("concurrency", right=True),
    TableColumn("queues", cut=1),
)


@click.command()
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker to check, e.g. tasks:worker.")
@json_option
@redis_options
def check(source: ConfigOptions, app: str | None, as_json: bool) -> None:
    """Check Redis and the application for unsafe settings.

    Reads the Redis server's version, role, memory, eviction policy, persistence, clock and permissions;
    imports the application; compares its queues with the queues in Redis, its jobs with the jobs of
    servers that share a queue, and the Redis that it enqueues to in this environment with the server's.
    Names the ordered queues that a failed job has blocked for more than a minute, the processes of go-workers
    and Sidekiq Pro without a heartbeat that have jobs in progress, and moves of queues to another Redis
    that have not ended. Prints the fix for each finding.

    \b
    Example: pyworkers check --config workers.toml

    Exit codes: 0 no findings, or only advice: the append-only file of a healthy new Redis is off, a password
    goes over a network in plain text, the URL leaves the files for TLS unused, a primary of sentinels takes
    writes without a replica; 1 findings, 2 configuration, 3 application import, 4 Redis unreachable.
    """
    config = source.load({"app": app})
    if config.app is None and source.path is not None:
        raise ConfigError(
            "no application", hint='set app = "module:attribute" in the configuration, or use --app'
        )
    if directory_of(config.redis.url) is not None:
        server_binary()
    targets = source.targets()
    found, own, uses = _of_app(targets, config, as_json)
    read = targets.gather(lambda redis: asyncio.run(_inspect(redis, own, uses)))
    findings = [*found, *each([Located(one.redis, one.item[0]) for one in read])]
    wire = {one.redis: one.item[1] for one in read}
    if as_json:
        about = {"redis": mask_url(config.redis.url), "app": config.app}
        shown = wire if targets.several else next(iter(wire.values()), [])
        print_json({**about, "wire": shown, "findings": list(targets.as_dicts(findings, asdict))})
    else:
        for name, versions in wire.items():
            where = f" of {name}" if targets.several else ""
            if versions:
                click.echo(printable(f"live servers{where} speak wire {', '.join(versions)}"))
        for where, finding in ((one.redis, one.item) for one in findings):
            kind = " (advice)" if finding.advice else ""
            code = f"{finding.code} of {where}" if targets.several and where else finding.code
            click.echo(printable_lines(f"{code}: {finding.message}{kind}\n    {finding.fix}"))
        if not findings and read:
            urls = ", ".join(mask_url(target.config.url) for target in targets)
            click.echo(f"{urls}: no findings")
    if not all(one.item.advice for one in findings):
        click.get_current_context().exit(1)


def _of_app(
    targets: Targets, config: Config, as_json: bool
) -> tuple[list[Located[Finding]], list[Declared], Uses]:
    """The findings about queues and the application, its classes, and the features of its jobs."""
    from pyworkers.api import Stats

    if config.app is None:
        if not as_json:
            click.echo("no application configured: only Redis is checked")
        return each(targets.gather(lambda redis: _held(Stats.fetch(redis)))), [], {}
    loaded = rehearse(config)
    work = plan(loaded.manifest, config, Only(), cores())
    if not as_json:
        click.echo(f"{config.app}: imported in {loaded.import_ms} ms, queues: {', '.join(work.queues)}")
        show(_GROUPS, map(_group_row, work.groups.values()))
    found = judge_app(config.app, loaded.import_ms, loaded.threads, loaded.opened)
    found += judge_producers(loaded.elsewhere, asdict(config.redis), config.path)
    stats = targets.gather(Stats.fetch)
    homes = {queue: Stores.of(config).name_of(queue) for queue in work.queues}
    unserved = each(Located(one.redis, _unserved(one, homes)) for one in stats)
    known = {name for name, home in homes.items() if home in {one.redis for one in stats}}
    unused = known - {queue.name for one in stats for queue in one.item.queues}
    for name in () if as_json else sorted(unused):
        click.echo(f"the queue {name} has a handler, but no job was ever enqueued to it")
    declared = [Declared(config.app, frozenset(work.queues), work.classes)]
    held = each(Located(one.redis, _held(one.item)) for one in stats)
    return [*(Located("", finding) for finding in found), *unserved, *held], declared, work.features


def _unserved(stats: Located[Stats], homes: Mapping[str, str]) -> list[Finding]:
    waiting = {queue.name: queue.size for queue in stats.item.queues}
    served = {queue.name for queue in stats.item.queues if queue.served}
    return judge_queues(stats.redis, waiting, served, homes)


def _held(stats: Stats) -> list[Finding]:
    from pyworkers.api.problems import held

    return [Finding(one.code, f"the queue {one.queue!r} {one.message}", one.fix) for one in held(stats)]


def _group_row(group: Group) -> tuple[str, ...]:
    queues = spell_queues(tuple(group.queues) if group.strict else group.queues)
    sizes = (group.spelled, str(group.concurrency))
    return f"    {printable(group.name)}", group.mode, *sizes, printable(queues)


async def _inspect(config: RedisConfig, own: list[Declared], uses: Uses) -> tuple[list[Finding], list[str]]:
    """The findings about Redis and its servers, and the versions of the wire that these speak."""
    from pyworkers.protocol.keys import Keys
    from pyworkers.store.flow.classes import declarations, unaware_servers
    from pyworkers.store.flow.servers import fields_of_others, uninformed
    from pyworkers.store.foreign import left
    from pyworkers.store.heartbeat import spoken
    from pyworkers.store.moving import unfinished
    from pyworkers.store.preflight import inspect, lacks
    from pyworkers.store.store import Store
    from pyworkers.store.transport.connections import connect_async

    store = Store(connect_async(config), Keys(config.namespace))
    try:
        redis_cli, followed = await store.redis_cli(), is_directory(config.url)
        findings = await store.arun(inspect(redis_cli, time.time, followed=followed))
        findings += await store.arun(lacks(config.namespace))
        findings += judge_password(await store.readable_on_the_way())
        findings += judge_files(config)
        findings += judge_servers(await store.arun(uninformed(store.keys, uses)))
        findings += judge_left(await store.arun(left(store.keys)))
        findings += judge_moves(await store.arun(unfinished(store.keys)))
        findings += judge_fields(await store.arun(fields_of_others(store.keys)))
        declared = await store.arun(declarations(store.keys))
        findings += judge_classes(unaware_servers([*declared, *own]))
        wire = await store.arun(spoken(store.keys))
        return findings + judge_wire(wire), wire
    finally:
        await store.close()
