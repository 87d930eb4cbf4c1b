"""Stores: the Redis servers of one program by name, and the one that has each queue.

Pure; used by producers, the command line and the master. The queues of a group are all on one Redis. No queue
is spread over several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import combinations
from urllib.parse import parse_qs, unquote, urlsplit

from pyworkers.config.directories import DirectoryUrl, is_directory
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.errors import ConfigError

DEFAULT = "default"
"""The name of ``[redis]``."""
REDIS_KEYS = frozenset(item.name for item in fields(RedisConfig))
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# redis-py's defaults.
_HOST, _PORT = "127.0.0.1", 6379


@dataclass(frozen=True, slots=True)
class Stores:
    """``by_name`` has at least the default one, first. ``elsewhere`` names the Redis of all other queues.

    ``limited`` has the jobs with limits of an application, by class with the queue of the declaration.
    """

    by_name: Mapping[str, RedisConfig]
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    limited: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, config: Config) -> Stores:
        """The Redis servers of a configuration."""
        named: dict[str, str] = {}
        for group in config.groups.values():
            if group.redis is not None:
                named |= dict.fromkeys(group.queues or (), group.redis)
        named |= {name: queue.redis for name, queue in config.queues.items() if queue.redis is not None}
        elsewhere = {queue: name for queue, name in named.items() if name != DEFAULT}
        return cls({DEFAULT: config.redis, **config.other_redis}, elsewhere)

    @property
    def default(self) -> RedisConfig:
        """The default one."""
        return self.by_name[DEFAULT]

    @property
    def several(self) -> bool:
        """True if there is another one than the default one."""
        return len(self.by_name) > 1

    @property
    def others(self) -> Mapping[str, RedisConfig]:
        """All but the default one."""
        return {name: redis for name, redis in self.by_name.items() if name != DEFAULT}

    def name_of(self, queue: str) -> str:
        """The name of the Redis that has a queue."""
        return self.elsewhere.get(queue, DEFAULT)

    def redis_of(self, queue: str) -> RedisConfig:
        """The Redis that has a queue."""
        return self.by_name[self.name_of(queue)]

    def with_default(self, redis: RedisConfig) -> Stores:
        """The same with another default one."""
        return replace(self, by_name={**self.by_name, DEFAULT: redis})

    def same(self) -> Iterator[tuple[str, str]]:
        """The pairs of names that are one Redis, with the same keys."""
        for (one, here), (other, there) in combinations(self.by_name.items(), 2):
            if (place(here.url), here.namespace) == (place(there.url), there.namespace):
                yield one, other


def place(url: str) -> tuple[object, ...]:
    """What two URLs of one Redis have in common: the address and the database, without user and options."""
    if is_directory(url):
        parts = DirectoryUrl.of(url)
        return frozenset(parts.hosts), parts.name, parts.database
    scheme, separator, rest = url.partition("://")
    if not separator:
        # The folder of an embedded server.
        return (url,)
    address, _, query = rest.partition("#")[0].partition("?")
    netloc, _, path = address.partition("/")
    host = netloc.rpartition("@")[2]
    given = parse_qs(query).get("db", [""])[0]
    if scheme == "unix":
        return unquote(f"{host}/{path}"), given or "0"
    one = urlsplit(f"//{host}")
    name = (one.hostname or _HOST).replace("localhost", _HOST)
    return name, one.port or _PORT, given or path.strip("/") or "0"


def one_store(redis: RedisConfig) -> Stores:
    """This Redis for all queues."""
    return Stores({DEFAULT: redis})


def with_redis(config: Config, name: str, redis: RedisConfig) -> Config:
    """The configuration with another Redis of this name."""
    if name == DEFAULT:
        return replace(config, redis=redis)
    return replace(config, other_redis={**config.other_redis, name: redis})


def check_on_one(
    stores: Stores, group: str, queues: Iterable[str], redis: str | None = None, location: str = ""
) -> None:
    """Raise ConfigError if queues of a group are on two Redis servers; ``redis`` is in its own table."""
    first: tuple[str, str] | None = None if redis is None else (f"[groups.{group}]", redis)
    for queue in queues:
        name = stores.name_of(queue)
        if first is None:
            first = (repr(queue), name)
        elif name != first[1]:
            raise ConfigError(
                f"the group {group!r} is on two Redis servers: {first[0]} on {first[1]}, {queue!r} on {name}",
                hint="give its queues one Redis, or put them into two groups",
                location=location or f"[groups.{group}]",
            )


def check_redis_name(name: str) -> None:
    """Raise ValueError, with the rule, for a name that no ``[redis.NAME]`` may have."""
    if name == DEFAULT:
        raise ValueError(f"{DEFAULT} is the Redis of the table [redis]: give this one another name")
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a Redis has letters, digits, _ and -, not {name!r}")
