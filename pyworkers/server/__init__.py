"""The master's side of a server. ``serve`` runs one; nothing here imports the application.

This module imports little: it launches the fork server first, which imports the application while the master
imports its parts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.config.stores import Stores, with_redis
from pyworkers.embedded import EmbeddedServer, directory_of, socket_url
from pyworkers.errors import ConfigError
from pyworkers.ipc.control import Load, Loaded, Settings
from pyworkers.programs.interpreter import Interpreter
from pyworkers.protocol.keeping import check_keep
from pyworkers.server.generations import filelimit
from pyworkers.server.generations.folder import Folder
from pyworkers.server.generations.launch import Launch, Launched, execute, fork
from pyworkers.server.generations.watching import check_installed
from pyworkers.server.incarnation import SIGNALS, make_identity, set_up_logs
from pyworkers.server.owner import Owner
from pyworkers.server.upgrade.predecessor import Predecessor
from pyworkers.server.upgrade.successor import CommandLine


def serve(
    config: Config,
    only: Only | None = None,
    fail_fast: bool = False,
    read: Callable[[], Config] | None = None,
    owner: Owner | None = None,
    reload: bool = False,
    drain_s: float | None = None,
    once: bool = False,
) -> None:
    """Run the server that the configuration describes; returns when a signal has stopped it.

    ``only`` limits it to these queues and groups. With ``fail_fast`` it ends if Redis is unreachable at the
    start. ``read`` reads the configuration again, for a reload. ``owner`` is the program that has started
    this one, if it ends with that. With ``reload``, changed files cause one. With ``drain_s`` it ends once no
    job is left that comes due within this time; ``once``, after one job. Raises PyworkersError.
    """
    with ExitStack() as stack:
        predecessor = Predecessor.of(os.environ)
        if predecessor is not None:
            stack.enter_context(predecessor)
        origin = _Origin(_interpreter())
        _app_of(config)
        if reload:
            check_installed()
        identity = make_identity()
        set_up_logs(config.log, identity)
        started = _with_embedded(config, stack)
        first = origin.launch_first(started, identity)
        stack.callback(first.kill)
        filelimit.lift()
        # Imported while the fork server imports the application.
        from pyworkers.server.master import Master, ServerStart

        _import_the_rest()

        async def main() -> None:
            configurations = Configurations(config, started, lambda: origin.read(read or (lambda: config)))
            watched = origin.watched(started) if reload else ()
            command = origin.command(config)
            start = ServerStart(
                only or Only(), command, predecessor, fail_fast, owner, watched, drain_s=drain_s, once=once
            )
            await Master(configurations, identity, first, origin.launch_again, start).run()

        _run_loop(main)


class _Origin:
    """The interpreter and the folder of this server, with which each of its fork servers is launched."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._folder = Folder(interpreter.folder)
        self._execute = partial(execute, interpreter)

    def command(self, config: Config) -> CommandLine:
        """The command line that starts this server again."""
        return CommandLine((self._interpreter.executable, *sys.orig_argv[1:]), self._folder, config.http.bind)

    def launch_first(self, config: Config, identity: str) -> Launched:
        """Launch the first fork server, with the signals of the master blocked until its loop runs."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        # A program that calls ``serve`` may have threads, and a process with threads must not fork.
        alone = threading.active_count() == 1
        return _launch(config, identity, self._interpreter, fork if alone else self._execute)

    def launch_again(self, config: Config, identity: str) -> Launched:
        """Launch another one, for a reload."""
        self._folder.enter()
        return _launch(config, identity, self._interpreter, self._execute)

    def read(self, read: Callable[[], Config]) -> Config:
        """Read the configuration again. A path in it may be relative, and so may the path of its file."""
        self._folder.enter()
        return read()

    def watched(self, config: Config) -> tuple[Path, ...]:
        """The folders whose changes cause a reload."""
        return tuple(dict.fromkeys(_folders(config, self._interpreter.folder)))


def _import_the_rest() -> None:
    """Import modules that are needed later: by then the files may belong to another release.

    The scripts; croniter, which the first cron entry needs; and the module for jobs of Active Job.
    """
    from pyworkers.store import scripts

    scripts.keep()
    for module in ("croniter", "pyworkers.protocol.active_job"):
        import_module(module)


def rehearse(config: Config, *, describe: bool = False) -> Loaded:
    """Load the application as a server does, in a process that ends at once; return its declarations.

    ``describe``: with its jobs for other languages. No worker is forked, no hook runs, and nothing is sent to
    Redis. Raises AppImportError and ConfigError.
    """
    interpreter = _interpreter()
    load = replace(_load(config, "check", interpreter), rehearse=True, describe=describe)
    return asyncio.run(_rehearse(load, partial(execute, interpreter)))


async def _rehearse(load: Load, launch: Launch) -> Loaded:
    # Imported here, because a server must import these modules only after the fork.
    from pyworkers.server.generations.generations import checked
    from pyworkers.server.generations.reaper import Reaper
    from pyworkers.server.generations.spawner import Spawner

    spawner = Spawner(Launched(load, os.environ, launch), Reaper(), lambda _: None)
    try:
        return checked(await spawner.loaded())
    finally:
        spawner.kill()
        spawner.process.wait()


def _interpreter() -> Interpreter:
    """The interpreter of this process. Raises ConfigError if its working directory is gone."""
    try:
        return Interpreter.of_this_process()
    except OSError as error:
        text = f"the working directory cannot be read: {error}"
        raise ConfigError(text, hint="change to a directory that exists") from error


def _launch(config: Config, identity: str, interpreter: Interpreter, launch: Launch) -> Launched:
    """Launch a fork server for the application. Raises ConfigError if the configuration names none."""
    env = os.environ | _config_environment(config, interpreter.folder)
    launched = Launched(_load(config, identity, interpreter), env, launch)
    filelimit.give_back(launched.process.pid)
    return launched


def _load(config: Config, identity: str, interpreter: Interpreter) -> Load:
    settings = Settings(
        max_retries=config.retry.max,
        backtrace=config.retry.backtrace,
        max_jobs_per_worker=config.server.max_jobs_per_worker,
        max_memory_mb=config.server.max_memory_mb,
        timeouts={name: q.timeout for name, q in config.queues.items() if q.timeout is not None},
        carry=list(config.log.carry),
        keep=_kept(config),
    )
    return Load(
        _app_of(config),
        _import_path(config, interpreter),
        config.log.level,
        config.log.format,
        identity,
        asdict(settings),
        redis=asdict(config.redis),
        other_redis={name: asdict(redis) for name, redis in config.other_redis.items()},
        elsewhere=dict(Stores.of(config).elsewhere),
        keys=config.encryption.keys,
        modules=list(interpreter.modules),
        argv=list(sys.argv),
    )


def _kept(config: Config) -> dict[str, list[int | bool]]:
    """The finished jobs to keep, by queue; an empty name is for the whole server."""
    server = check_keep(config.server.keep)
    found: dict[str, list[int | bool]] = {"": [*server, config.server.keep_args]} if server else {}
    for name, queue in config.queues.items():
        if queue.keep is not None:
            keep = check_keep(queue.keep)
            found[name] = [*keep, queue.keep_args is not False] if keep else []
    return found


def _app_of(config: Config) -> str:
    if config.app is None:
        raise ConfigError(
            "no application", hint='set app = "module:attribute" in the configuration, or use --app'
        )
    return config.app


def _import_path(config: Config, interpreter: Interpreter) -> list[str]:
    """The entries in front of ``sys.path``: ours, unless PYTHONPATH names them, and the program's."""
    folders = dict.fromkeys(map(str, _folders(config, interpreter.folder)))
    return [*(folder for folder in folders if folder not in interpreter.path), *interpreter.path]


def _folders(config: Config, here: Path) -> tuple[Path, ...]:
    """The working directory, and the folder of the configuration file."""
    return (here,) if config.path is None else (here, _by_name(config.path, here).parent)


def _config_environment(config: Config, here: Path) -> dict[str, str]:
    """The path of the configuration file, for programs that jobs start; its content may be secret."""
    return {} if config.path is None else {"PYWORKERS_CONFIG": str(_by_name(config.path, here))}


def _by_name(path: Path, here: Path) -> Path:
    """An absolute path, with the links in it; ``..`` behind a link leads elsewhere than its text."""
    plain = Path(os.path.normpath(here / path))
    with suppress(OSError):
        if plain.samefile(here / path):
            return plain
    return here / path


def _with_embedded(config: Config, stack: ExitStack) -> Config:
    """Start the embedded servers that the configuration names; their URLs then name their sockets."""
    for name, redis in Stores.of(config).by_name.items():
        directory = directory_of(redis.url)
        if directory is not None:
            stack.enter_context(EmbeddedServer(directory))
            config = with_redis(config, name, replace(redis, url=socket_url(redis.url)))
    return config


def _run_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run the master in an event loop, from uvloop if the extra ``fast`` is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
