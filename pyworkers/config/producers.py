"""Producers: which Redis a client uses, from arguments, environment and configuration file.

Used by programs that enqueue, also inside jobs, and by the command line. It opens no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pyworkers.config import own_redis
from pyworkers.config.checks import check_slot
from pyworkers.config.fields import RedisConfig
from pyworkers.config.options import describe
from pyworkers.errors import ConfigError

if TYPE_CHECKING:
    from pyworkers.config.sources import Place

_CONFIG = "PYWORKERS_CONFIG"
_NAMESPACE = "PYWORKERS_REDIS__NAMESPACE"


def config_for(
    url: str | None, namespace: str | None, env: Mapping[str, str], path: str | Place | None = None
) -> RedisConfig:
    """The configuration of a client. Inside a job, None takes the value of the server that runs the job.

    Elsewhere it comes from ``PYWORKERS_REDIS__*``, then ``REDIS_URL``, then from the file at ``path`` or else
    at ``PYWORKERS_CONFIG``, as for the server itself. A given ``url`` is complete: user, password and
    certificates of the configuration belong to another server. Raises ConfigError.
    """
    found = _config_for(url, namespace, env, path)
    try:
        check_slot(found.url, found.namespace)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return found


def _config_for(
    url: str | None, namespace: str | None, env: Mapping[str, str], path: str | Place | None
) -> RedisConfig:
    given = {name: value for name, value in (("url", url), ("namespace", namespace)) if value is not None}
    _check_fields(given)
    if len(given) == 2:
        return RedisConfig(**given)
    if url is None:
        return replace(_surroundings(env, path), **given)
    env = {name: env[name] for name in (_NAMESPACE, _CONFIG) if name in env}
    return RedisConfig(url, _surroundings(env, path).namespace)


def config_of_file(path: str | Place, env: Mapping[str, str]) -> RedisConfig:
    """The ``[redis]`` table of a file; variables in ``env`` override it. Raises ConfigError."""
    # Imported here, because most producers have no file.
    from pyworkers.config.loading import load

    # A namespace that is missing in the file may be that of the environment.
    of_env = {name: env[name] for name in (_NAMESPACE,) if name in env}
    found = load(Path(path) if isinstance(path, str) else path, env=of_env).redis
    return replace(found, **_from_env(env))


def queues_of_file(path: str | Place | None, env: Mapping[str, str]) -> frozenset[str] | None:
    """The queues of the groups and sections of the file at ``path``, or else at ``PYWORKERS_CONFIG``.

    None without a file. Raises ConfigError.
    """
    found = path or env.get(_CONFIG)
    if not found:
        return None
    from pyworkers.config.loading import load

    config = load(Path(found) if isinstance(found, str) else found, env={})
    return frozenset(chain(config.queues, *(group.queues or () for group in config.groups.values())))


def _surroundings(env: Mapping[str, str], path: str | Place | None) -> RedisConfig:
    if (own := own_redis.of_this_process()) is not None:
        return RedisConfig(**own)
    if path is not None or env.get(_CONFIG):
        return config_of_file(path or env[_CONFIG], env)
    return RedisConfig(**_from_env(env))


def _from_env(env: Mapping[str, str]) -> dict[str, str]:
    names = {field.name: f"PYWORKERS_REDIS__{field.name.upper()}" for field in fields(RedisConfig)}
    values = {name: env[variable] for name, variable in names.items() if variable in env}
    values["url"] = values.get("url") or env.get("REDIS_URL", "")
    if not values["url"]:
        del values["url"]
    _check_fields(values)
    return values


def _check_fields(values: Mapping[str, str]) -> None:
    for option in describe():
        name = option.path[-1]
        if option.path[0] == "redis" and name in values and option.check:
            _check(name, values[name], option.check)


def _check(name: str, value: str, check: Callable[[str], None]) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from error
