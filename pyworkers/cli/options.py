"""The options ``--config``, ``--url`` and ``--namespace`` of all commands that need a Redis, and groups.

Loads the configuration; never connects, except to check that an embedded server is running.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec

import click
from click.core import ParameterSource

from pyworkers.cli.targets import Targets, end_with_away
from pyworkers.config.checks import mask_url
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.loading import load
from pyworkers.config.sources import Place
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.embedded import answers, directory_of, socket_path
from pyworkers.errors import ConfigError, RedisUnavailableError

_FOR_REDIS = ("-c", "--config", "--url", "--namespace", "--redis")
_NOTHING: Mapping[str, object] = MappingProxyType({})

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Project:
    """A project whose settings are the configuration."""

    settings: Place
    settings_again: Place
    """Reads them for a reload, in a process that has not imported them yet."""


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """The configuration options of a command line; None: not given."""

    path: Place | None
    url: str | None
    namespace: str | None
    again: Place | None = None
    """What a server reads at a reload, if not ``path``."""
    redis_name: str | None = None
    """The Redis that is named by ``--redis``; None: all."""

    @property
    def name(self) -> str:
        """What the configuration is read from, for display."""
        if callable(self.path):
            return self.path().name
        return str(self.path or "no file, only environment and defaults")

    def load(self, overrides: Mapping[str, object] = _NOTHING) -> Config:
        """The configuration in effect; ``overrides`` are further dotted keys. Raises ConfigError."""
        own = {"redis.url": self.url, "redis.namespace": self.namespace}
        return load(self.path, env=os.environ, overrides={**own, **overrides})

    def load_again(self, overrides: Mapping[str, object] = _NOTHING) -> Config:
        """As ``load``, for a reload of a server."""
        return replace(self, path=self.again or self.path).load(overrides)

    def redis(self) -> RedisConfig:
        """The ``[redis]`` part, or the Redis that ``--redis`` names.

        Raises ConfigError; RedisUnavailableError if an embedded server is down.
        """
        return self.redis_named(self.redis_name or DEFAULT)

    def redis_named(self, name: str) -> RedisConfig:
        """The table ``[redis.NAME]``; ``default`` is ``[redis]``. Raises as ``redis``."""
        return _running(replace(self, redis_name=name).redis_configured())

    def redis_configured(self) -> RedisConfig:
        """As ``redis``, without a look at whether an embedded server is running. Raises ConfigError."""
        stores, name = self._stores(), self.redis_name or DEFAULT
        self._check(name, stores)
        return stores.by_name[name]

    def redis_of(self, queue: str) -> RedisConfig:
        """The Redis that has a queue, or the one that ``--redis`` names. Raises as ``redis``."""
        return self.redis_named(self.redis_name or self.home_of(queue))

    def home_of(self, queue: str) -> str:
        """The name of the Redis that has a queue. Raises ConfigError."""
        return self._stores().name_of(queue)

    def default_only(self) -> ConfigOptions:
        """The same for ``[redis]``, which has all thresholds. Raises ConfigError for another ``--redis``."""
        if self.redis_name not in (None, DEFAULT):
            raise ConfigError("thresholds are in [redis], for all Redis servers", hint="leave out --redis")
        return replace(self, redis_name=DEFAULT)

    def targets(self) -> Targets:
        """All Redis servers of the configuration, or the one that ``--redis`` names. Raises ConfigError."""
        stores = self._stores()
        names = [self.redis_name] if self.redis_name is not None else list(stores.by_name)
        for name in names:
            self._check(name, stores)
        return Targets(names, lambda name: _running(stores.by_name[name]), several=stores.several)

    def target_of(self, queue: str) -> Targets:
        """As ``targets``, but only the Redis that has a queue."""
        return replace(self, redis_name=self.redis_name or self.home_of(queue)).targets()

    def _stores(self) -> Stores:
        return Stores.of(self.load())

    def _check(self, name: str, stores: Stores) -> None:
        if name not in stores.by_name:
            known = ", ".join(stores.by_name)
            raise ConfigError(f"there is no Redis {name!r} in {self.name}", hint=f"known here: {known}")


def _running(redis: RedisConfig) -> RedisConfig:
    """The same. Raises RedisUnavailableError if it is an embedded server that is down."""
    directory = directory_of(redis.url)
    if directory is not None and not answers(socket_path(directory)):
        hint = "Start `pyworkers run` with the same configuration: it starts the embedded server."
        raise RedisUnavailableError(f"no embedded server answers in {directory}", hint=hint)
    return redis


class _FileOption(click.Option):
    """``--config``. It is not in the help of a project, whose settings are the configuration."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line of the help; None in a project."""
        return super().get_help_record(ctx) if ctx.obj is None else None


_OPTIONS = (
    click.option(
        "-c",
        "--config",
        "path",
        cls=_FileOption,
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="PYWORKERS_CONFIG",
        show_envvar=True,
        help="Configuration file, e.g. workers.toml.",
    ),
    click.option(
        "--url",
        metavar="URL",
        help="Redis, e.g. redis://127.0.0.1:6379/0, or embedded:DIR.  [default: $REDIS_URL, or [redis] url]",
    ),
    click.option("--namespace", metavar="PREFIX", help="Prefix of every key, with its colon, e.g. app:"),
)


def config_options(command: Callable[Concatenate[ConfigOptions, P], None]) -> Callable[..., None]:
    """Add ``--config``, ``--url`` and ``--namespace``; the command gets a Source as its first argument."""

    @functools.wraps(command)
    def with_source(
        *args: Any, path: Path | None, url: str | None, namespace: str | None, **others: Any
    ) -> None:
        _refuse_empty(click.get_current_context())
        _warn_of_password(url or "")
        command(_source(path, url, namespace), *args, **others)

    decorated: Callable[..., None] = with_source
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_ONE_REDIS = click.option(
    "--redis",
    "redis_name",
    metavar="NAME",
    help="One Redis of several: default, or the NAME of a table [redis.NAME].",
)


def redis_options(command: Callable[Concatenate[ConfigOptions, P], None]) -> Callable[..., None]:
    """As ``config_options``, for a command that reads or changes what is in Redis: adds ``--redis``."""

    @functools.wraps(command)
    def of_one(source: ConfigOptions, /, *args: P.args, **others: P.kwargs) -> None:
        name = others.pop("redis_name", None)
        command(replace(source, redis_name=name if isinstance(name, str) else None), *args, **others)
        end_with_away()

    return _ONE_REDIS(config_options(of_one))


def _refuse_empty(context: click.Context) -> None:
    """Refuse an option without a text: the variable of a script is empty, and no option would mean more."""
    for option in context.command.params:
        # An empty prefix is one; a callback checks its own text.
        if isinstance(option, click.Option) and option.name != "namespace" and option.callback is None:
            given = context.params.get(option.name or "")
            texts = given if isinstance(given, tuple) else (given,)
            if "" in texts and context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
                raise click.BadParameter("is empty: give it a value, or leave it out", context, option)


def _warn_of_password(url: str) -> None:
    """Say that the list of processes shows a password to every user of the machine."""
    if mask_url(url) != url:
        click.echo(
            "Warning: other users of this machine can read the password in --url in the list of processes; "
            "set REDIS_URL, PYWORKERS_REDIS__PASSWORD, or redis.url or redis.password in the configuration",
            err=True,
        )


def _source(path: Path | None, url: str | None, namespace: str | None) -> ConfigOptions:
    """The options of this command; in a project, its settings replace the file."""
    context = click.get_current_context()
    project: Project | None = context.obj
    if project is None:
        return ConfigOptions(path, url, namespace)
    if context.get_parameter_source("path") is ParameterSource.COMMANDLINE:
        raise click.UsageError("the configuration of this project is in its settings, not in a file")
    return ConfigOptions(project.settings, url, namespace, project.settings_again)


class _ListingGroup(click.Group):
    """A group that defaults to ``list``, and also takes the options for Redis before the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, and its arguments after the options given to the group."""
        given = _given(ctx)
        while args and args[0].split("=")[0] in _FOR_REDIS:
            size = 1 if "=" in args[0] else 2
            given, args = [*given, *args[:size]], args[size:]
        if not args or args[0].startswith("-"):
            args = ["list", *args]
        # For a name that is near to one of them, click has a suggestion.
        if not (ctx.resilient_parsing or get_close_matches(args[0], self.commands)):
            ctx.fail(f"No such command {args[0]!r}: the commands are {', '.join(self.commands)}")
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, [*given, *rest]


def _given(ctx: click.Context) -> list[str]:
    """The options for Redis given before the command."""
    options = {"path": "--config", "url": "--url", "namespace": "--namespace", "redis_name": "--redis"}
    return [
        f"{option}={ctx.params[name]}"
        for name, option in options.items()
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]


def listing_group(
    name: str, text: str, commands: Mapping[str, click.Command], arguments: Sequence[click.Argument] = ()
) -> click.Group:
    """A group of commands that defaults to its command ``list``; ``text`` is its help."""

    @click.pass_context
    def group(ctx: click.Context, /, **_params: Any) -> None:
        if ctx.invoked_subcommand is None:
            with commands["list"].make_context("list", _given(ctx), parent=ctx) as sub:
                commands["list"].invoke(sub)

    @redis_options
    def options(_source: ConfigOptions) -> None: ...

    return _ListingGroup(
        name,
        commands=dict(commands),
        callback=group,
        params=[*arguments, *reversed(getattr(options, "__click_params__", []))],
        help=text,
        invoke_without_command=True,
        context_settings={"ignore_unknown_options": True},
    )
