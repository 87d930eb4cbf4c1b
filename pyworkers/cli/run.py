"""``pyworkers run``: the server.

Starts the fork server first, so that the application is imported while the master imports its parts, and then
becomes the master.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from pyworkers.cli.options import Source, config_options
from pyworkers.config.fields import Config
from pyworkers.embedded import EmbeddedServer, directory_of, socket_url
from pyworkers.errors import ConfigError
from pyworkers.protocol.keys import check_queue_name
from pyworkers.server.generations.launch import Launch, execute, fork
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.identity import SIGNALS, make_identity, set_up_logs
from pyworkers.server.load import load_word

_LEVELS = ("debug", "info", "warning", "error")
_FORMATS = ("auto", "console", "json")


def _parse_queues(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, int | None]:
    return dict(_parse_queue(value) for value in values)


def _parse_queue(value: str) -> tuple[str, int | None]:
    name, equals, number = value.rpartition("=")
    if not equals:
        name, number = value, ""
    try:
        check_queue_name(name)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if not equals:
        return name, None
    if not number.isdecimal() or int(number) < 1:
        raise click.BadParameter(f"{number!r} is not a number of workers; write {name}=10")
    return name, int(number)


@click.command()
@click.option("-a", "--app", metavar="MODULE:NAME", help="The Worker to serve, e.g. tasks:worker.")
@click.option(
    "-q",
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[=CONCURRENCY]",
    callback=_parse_queues,
    help="Serve only this queue, with this many workers; may be repeated.",
)
@click.option("--log-level", type=click.Choice(_LEVELS), help="Lowest level to log.")
@click.option("--log-format", type=click.Choice(_FORMATS), help="Format of the log lines.")
@click.option("--fail-fast", is_flag=True, help="Exit with code 4 if Redis is unreachable at the start.")
@config_options
def run(
    source: Source,
    app: str | None,
    queues: Mapping[str, int | None],
    log_level: str | None,
    log_format: str | None,
    fail_fast: bool,
) -> None:
    """Run the server: execute jobs until a signal stops it.

    \b
    Signals: TERM, INT  finish running jobs (server.shutdown_timeout), then exit 0
             TSTP       fetch nothing more
             HUP        reload the application without a gap
             TTIN       log the state of the server and the stacks of all workers

    Exit codes: 0 stopped by a signal, 1 unexpected error, 2 configuration, 3 application import, 4 Redis
    unreachable with --fail-fast.
    """
    config = source.load({"app": app, "log.level": log_level, "log.format": log_format})
    if config.app is None:
        raise ConfigError(
            "no application", hint='set app = "module:attribute" in the configuration, or use --app'
        )
    serve(config, queues, fail_fast)


def serve(config: Config, queues: Mapping[str, int | None], fail_fast: bool) -> None:
    """Be the server that the configuration describes; returns when it has stopped as asked."""
    identity = make_identity()
    set_up_logs(config.log, identity)
    with ExitStack() as stack:
        config = _with_embedded(config, stack)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        # A program that calls this as a function may have threads, which no fork may copy.
        launch = fork if threading.active_count() == 1 else execute
        spawner = make_spawner(config, identity, launch=launch)
        spawner.start()
        stack.callback(spawner.kill)
        # The parts of the master, while the fork server imports the application.
        from pyworkers.server.master import Master

        master = Master(config, identity, spawner, partial(make_spawner, config), queues, fail_fast)
        _run_loop(master.run)


def _with_embedded(config: Config, stack: ExitStack) -> Config:
    """Start the embedded server if the configuration names one; its place is fixed from here on."""
    directory = directory_of(config.redis.url)
    if directory is None:
        return config
    stack.enter_context(EmbeddedServer(directory))
    return replace(config, redis=replace(config.redis, url=socket_url(config.redis.url)))


def make_spawner(
    config: Config, identity: str, *, rehearse: bool = False, launch: Launch = execute
) -> Spawner:
    """A fork server for the application; ``rehearse``: only to see whether it can be imported."""
    load = replace(load_word(config, _import_path(config), identity), rehearse=rehearse)
    return Spawner(load, os.environ if rehearse else os.environ | _config_environment(config), launch)


def _import_path(config: Config) -> list[str]:
    folders = [Path.cwd()]
    if config.path is not None:
        folders.append(config.path.resolve().parent)
    return [str(folder) for folder in folders]


def _config_environment(config: Config) -> dict[str, str]:
    """What lets programs that jobs start find the file: its path, for what it holds may be secret."""
    return {} if config.path is None else {"PYWORKERS_CONFIG": str(config.path.resolve())}


def _run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the master's loop: uvloop's where the extra ``fast`` is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
