"""The master's side of a server. ``serve`` runs one; nothing here imports the application.

This module imports little: it launches the fork server first, which imports the application while the master
imports its parts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.embedded import EmbeddedServer, directory_of, socket_url
from pyworkers.errors import ConfigError
from pyworkers.ipc.control import Load, Loaded, Settings
from pyworkers.server.generations import filelimit
from pyworkers.server.generations.launch import Launch, Launched, execute, fork
from pyworkers.server.generations.watching import check_installed
from pyworkers.server.incarnation import SIGNALS, make_identity, set_up_logs
from pyworkers.server.upgrade.predecessor import Predecessor
from pyworkers.server.upgrade.successor import Command

if TYPE_CHECKING:
    from pyworkers.server.owned.owner import Owner


def serve(
    config: Config,
    only: Only | None = None,
    fail_fast: bool = False,
    read: Callable[[], Config] | None = None,
    owner: Owner | None = None,
    reload: bool = False,
) -> None:
    """Run the server that the configuration describes; returns when a signal has stopped it.

    ``only`` limits it to these queues and groups. With ``fail_fast`` it ends if Redis is unreachable at the
    start. ``read`` reads the configuration again, for a reload. ``owner`` is the program that has started
    this one, if it ends with that. With ``reload``, changed files cause one. Raises PyworkersError.
    """
    started = config
    with ExitStack() as stack:
        predecessor = Predecessor.of(os.environ)
        if predecessor is not None:
            stack.enter_context(predecessor)
        command = Command.of_this_process(config.http.bind)
        _app_of(config)
        if reload:
            check_installed()
        identity = make_identity()
        set_up_logs(config.log, identity)
        config = _with_embedded(config, stack)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        # A program that calls this function may have threads, and a process with threads must not fork.
        launch = fork if threading.active_count() == 1 else execute
        first = _launch(config, identity, launch)
        stack.callback(first.kill)
        filelimit.lift()
        # Imported while the fork server imports the application.
        from pyworkers.server.master import Master, Start

        async def main() -> None:
            configurations = Configurations(started, config, read or (lambda: started))
            watched = tuple(dict.fromkeys(_folders(config))) if reload else ()
            start = Start(only or Only(), command, predecessor, fail_fast, owner, watched)
            await Master(configurations, identity, first, _launch, start).run()

        _run_loop(main)


def rehearse(config: Config) -> Loaded:
    """Load the application as a server does, in a process that ends at once; return its declarations.

    No worker is forked, no hook runs, and nothing is sent to Redis. Raises AppImportError and ConfigError.
    """
    return asyncio.run(_rehearse(replace(_load(config, "check"), rehearse=True)))


async def _rehearse(load: Load) -> Loaded:
    # Imported here, because a server must import these modules only after the fork.
    from pyworkers.server.generations.generations import checked
    from pyworkers.server.generations.reaper import Reaper
    from pyworkers.server.generations.spawner import Spawner

    spawner = Spawner(Launched(load, os.environ), Reaper(), lambda _: None)
    try:
        return checked(await spawner.loaded())
    finally:
        spawner.kill()
        spawner.process.wait()


def _launch(config: Config, identity: str, launch: Launch = execute) -> Launched:
    """Launch a fork server for the application. Raises ConfigError if the configuration names none."""
    launched = Launched(_load(config, identity), os.environ | _config_environment(config), launch)
    filelimit.give_back(launched.process.pid)
    return launched


def _load(config: Config, identity: str) -> Load:
    settings = Settings(
        max_retries=config.retry.max,
        backtrace=config.retry.backtrace,
        max_jobs_per_worker=config.server.max_jobs_per_worker,
        max_memory_mb=config.server.max_memory_mb,
        timeouts={name: q.timeout for name, q in config.queues.items() if q.timeout is not None},
        carry=list(config.log.carry),
    )
    return Load(
        _app_of(config),
        _import_path(config),
        config.log.level,
        config.log.format,
        identity,
        asdict(settings),
        redis=asdict(config.redis),
        keys=config.encryption.keys,
    )


def _app_of(config: Config) -> str:
    if config.app is None:
        raise ConfigError(
            "no application", hint='set app = "module:attribute" in the configuration, or use --app'
        )
    return config.app


def _import_path(config: Config) -> list[str]:
    """The entries in front of ``sys.path``."""
    return [*map(str, _folders(config)), *config.import_path]


def _folders(config: Config) -> tuple[Path, ...]:
    """The working directory, and the folder of the configuration file."""
    if config.path is None:
        return (Path.cwd(),)
    return (Path.cwd(), config.path.resolve().parent)


def _config_environment(config: Config) -> dict[str, str]:
    """The path of the configuration file, for programs that jobs start; its content may be secret."""
    return {} if config.path is None else {"PYWORKERS_CONFIG": str(config.path.resolve())}


def _with_embedded(config: Config, stack: ExitStack) -> Config:
    """Start the embedded server if the configuration names one; the URL is then the one of its socket."""
    directory = directory_of(config.redis.url)
    if directory is None:
        return config
    stack.enter_context(EmbeddedServer(directory))
    return replace(config, redis=replace(config.redis, url=socket_url(config.redis.url)))


def _run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the master in an event loop, from uvloop if the extra ``fast`` is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
