"""Producers: which Redis a client uses, from arguments, environment and configuration file.

Used by programs that enqueue, also inside jobs, and by the command line. It opens no connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from pyworkers.config import own_redis
from pyworkers.config.checks import check_slot
from pyworkers.config.fields import RedisConfig
from pyworkers.config.options import describe
from pyworkers.config.stores import DEFAULT, Stores, one_store
from pyworkers.errors import ConfigError

if TYPE_CHECKING:
    from pyworkers.config.sources import Place

_CONFIG = "PYWORKERS_CONFIG"
_NAMESPACE = "PYWORKERS_REDIS__NAMESPACE"
# The variables of [redis.NAME], and those that say which queue is where.
_OF_ANOTHER = re.compile("PYWORKERS_REDIS__.+__.+")
_OF_SEVERAL = re.compile(
    f"{_OF_ANOTHER.pattern}|PYWORKERS_(QUEUES|GROUPS)__.+__REDIS|PYWORKERS_GROUPS__.+__QUEUES"
)


def config_for(
    url: str | None, namespace: str | None, env: Mapping[str, str], path: str | Place | None = None
) -> RedisConfig:
    """The default Redis of ``stores_for``."""
    return stores_for(url, namespace, env, path).default


def stores_for(
    url: str | None, namespace: str | None, env: Mapping[str, str], path: str | Place | None = None
) -> Stores:
    """The Redis servers of a client. Inside a job, None takes the value of the server that runs the job.

    Elsewhere it comes from ``PYWORKERS_REDIS__*``, then ``REDIS_URL``, then from the file at ``path`` or else
    at ``PYWORKERS_CONFIG``, as for the server itself. A given ``url`` is complete: user, password and
    certificates of the configuration belong to another server, and all queues are there. Raises ConfigError.
    """
    found = _stores_for(url, namespace, env, path)
    try:
        for redis in found.by_name.values():
            check_slot(redis.url, redis.namespace)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return found


def _stores_for(
    url: str | None, namespace: str | None, env: Mapping[str, str], path: str | Place | None
) -> Stores:
    given = {name: value for name, value in (("url", url), ("namespace", namespace)) if value is not None}
    _check_fields(given)
    if len(given) == 2:
        return one_store(RedisConfig(**given))
    if url is None:
        found = _surroundings(env, path)
        return found.with_default(replace(found.default, **given))
    env = {name: env[name] for name in (_NAMESPACE, _CONFIG) if name in env}
    return one_store(RedisConfig(url, _surroundings(env, path).default.namespace))


def stores_of_file(path: str | Place, env: Mapping[str, str]) -> Stores:
    """The Redis servers of a file; variables in ``env`` override them. Raises ConfigError."""
    return _loaded(Path(path) if isinstance(path, str) else path, env)


def _loaded(place: Place | None, env: Mapping[str, str]) -> Stores:
    # Imported here, because most producers have no file.
    from pyworkers.config.loading import load

    # A namespace that is missing in the file may be in the environment.
    of_env = {name: env[name] for name in (_NAMESPACE,) if name in env}
    several = {name: value for name, value in env.items() if _OF_SEVERAL.fullmatch(name)}
    config = load(place, env=of_env)
    if config.other_redis or several:
        config = load(place, env=of_env | several)
    found = Stores.of(config)
    return found.with_default(replace(found.default, **_from_env(env)))


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


def _surroundings(env: Mapping[str, str], path: str | Place | None) -> Stores:
    if (own := own_redis.of_this_process()) is not None:
        others = {name: RedisConfig(**fields) for name, fields in own.others.items()}
        return Stores({DEFAULT: RedisConfig(**own.redis), **others}, own.elsewhere)
    if path is not None or env.get(_CONFIG):
        return stores_of_file(path or env[_CONFIG], env)
    if any(map(_OF_ANOTHER.fullmatch, env)):
        return _loaded(None, env)
    return one_store(RedisConfig(**_from_env(env)))


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
        if option.path[:-1] == ("redis",) and name in values and option.check:
            _check(name, values[name], option.check)


def _check(name: str, value: str, check: Callable[[str], None]) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a string, not {type(value).__name__}")
    try:
        check(value)
    except ValueError as error:
        raise ConfigError(f"{name} {error}") from error
