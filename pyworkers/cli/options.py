"""The options ``--config``, ``--url`` and ``--namespace`` of all commands that need a Redis.

Loads the configuration; never connects, except to check that an embedded server is running.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec

import click

from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.loading import load
from pyworkers.embedded import answers, directory_of, socket_path
from pyworkers.errors import RedisUnavailableError

_NOTHING: Mapping[str, object] = MappingProxyType({})

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Source:
    """The configuration options of a command line; None: not given."""

    path: Path | None
    url: str | None
    namespace: str | None

    def load(self, overrides: Mapping[str, object] = _NOTHING) -> Config:
        """The configuration in effect; ``overrides`` are further dotted keys. Raises ConfigError."""
        own = {"redis.url": self.url, "redis.namespace": self.namespace}
        return load(self.path, env=os.environ, overrides={**own, **overrides})

    def redis(self) -> RedisConfig:
        """The ``[redis]`` part. Raises ConfigError; RedisUnavailableError if an embedded server is down."""
        redis = self.load().redis
        directory = directory_of(redis.url)
        if directory is not None and not answers(socket_path(directory)):
            hint = "Start `pyworkers run` with the same configuration: it starts the embedded server."
            raise RedisUnavailableError(f"no embedded server answers in {directory}", hint=hint)
        return redis


_OPTIONS = (
    click.option(
        "-c",
        "--config",
        "path",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="PYWORKERS_CONFIG",
        show_envvar=True,
        help="Configuration file, e.g. conf/workers.toml.",
    ),
    click.option("--url", help="Redis, e.g. redis://127.0.0.1:6379/0, or embedded:DIR."),
    click.option("--namespace", metavar="PREFIX", help="Prefix of every key, with its colon, e.g. app:"),
)


def config_options(command: Callable[Concatenate[Source, P], None]) -> Callable[..., None]:
    """Add ``--config``, ``--url`` and ``--namespace``; the command gets a Source as its first argument."""

    @functools.wraps(command)
    def with_source(
        *args: Any, path: Path | None, url: str | None, namespace: str | None, **others: Any
    ) -> None:
        command(Source(path, url, namespace), *args, **others)

    decorated: Callable[..., None] = with_source
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
