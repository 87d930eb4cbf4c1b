"""Reloading: the configuration of a running server, and the one that its next load of the application uses.

Used by the master. A server keeps the values that its connections, sockets and intervals were made with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyworkers.config.checks import mask_url
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.options import describe
from pyworkers.config.stores import DEFAULT, Stores, with_redis
from pyworkers.errors import ConfigError


def _declared() -> Mapping[str, list[str]]:
    """The names of the fields that are declared with ``restart``, by section."""
    found: dict[str, list[str]] = {}
    for option in describe():
        if option.restart and "*" not in option.path:
            found.setdefault(option.path[0], []).append(option.attribute)
    return found


_FIXED = _declared()


class Configurations:
    """``current`` is in effect; ``started`` is what the sources held at the start.

    The two differ in the URL of an embedded Redis. ``read`` reads the sources again, and raises ConfigError.
    """

    def __init__(self, started: Config, current: Config, read: Callable[[], Config]) -> None:
        self.current = current
        self._started = started
        self._read = read
        self._pending: Config | None = None
        self.loading = current
        """The configuration of the latest load of the application."""
        self.offered: Mapping[str, RedisConfig] = {}
        """Other Redis servers that were read last, by name. Each may be used if its data are the same."""

    @property
    def embedded(self) -> bool:
        """True if this server runs a Redis."""
        return any(map(self._is_embedded, self._redis))

    @property
    def shown_redis(self) -> dict[str, str]:
        """The URLs as they were configured, without passwords, each with its namespace, by name."""
        return {name: _shown(redis) for name, redis in self._redis.items()}

    @property
    def _redis(self) -> Mapping[str, RedisConfig]:
        return Stores.of(self._started).by_name

    def _is_embedded(self, name: str) -> bool:
        return Stores.of(self.current).by_name[name].url != self._redis[name].url

    def read_again(self) -> list[str]:
        """Read the sources for the next load. Returns the keys with a change that only a restart applies.

        Raises ConfigError.
        """
        new = self._read()
        if new.app is None:
            raise ConfigError("no application", hint='set app = "module:attribute" in the configuration')
        stores = Stores.of(new)
        self._check_running(stores)
        self._pending = with_fixed_of(new, self.current)
        common = stores.by_name.keys() & self._redis.keys()
        self.offered = {name: stores.by_name[name] for name in common if self._may_move(name, stores)}
        return _changes(self._started, new)

    def _check_running(self, stores: Stores) -> None:
        """Raise ConfigError for a queue on a Redis that was added after the start."""
        for queue, name in stores.elsewhere.items():
            if name not in self._redis:
                text = f"the queue {queue!r} is on the Redis {name!r}, which was added after the start"
                raise ConfigError(text, hint="restart the server", location=f"[redis.{name}]")

    def _may_move(self, name: str, stores: Stores) -> bool:
        """False if the new Redis is the same one, has other keys, or is an embedded one."""
        new, before = stores.by_name[name], self._redis[name]
        embedded = self._is_embedded(name) or new.url.startswith("embedded:")
        return not embedded and new != before and new.namespace == before.namespace

    def move_to(self, name: str, redis: RedisConfig, ignored: list[str]) -> list[str]:
        """Use another Redis from now on. Returns the other ones of these keys, whose changes are ignored."""
        self._started = with_redis(self._started, name, redis)
        self.current = with_redis(self.current, name, redis)
        if self._pending is not None:
            self._pending = with_redis(self._pending, name, redis)
        moved = {_key(name, item) for item in _FIXED["redis"]}
        return [key for key in ignored if key not in moved]

    def load(self) -> Config:
        """The configuration for a load of the application that begins now.

        The one that was read last counts once: a load that replaces a crashed fork server, or follows a
        failed load, has the current one.
        """
        self.loading, self._pending = self._pending or self.current, None
        return self.loading

    def use(self, config: Config) -> None:
        """Note that this configuration is in effect."""
        # The load may have begun before ``move_to``.
        self.current = replace(config, redis=self.current.redis, other_redis=self.current.other_redis)


def with_fixed_of(new: Config, running: Config) -> Config:
    """The new configuration with the values of the running one that only a restart changes."""
    kept: dict[str, Any] = {
        section: {name: getattr(getattr(running, section), name) for name in names}
        for section, names in _FIXED.items()
    }
    sections = {section: replace(getattr(new, section), **values) for section, values in kept.items()}
    return replace(new, **sections, other_redis=running.other_redis)


def _changes(started: Config, new: Config) -> list[str]:
    """The keys that differ and are fixed; ``redis.NAME`` for a table that was added or removed."""
    before, after = _fixed(started), _fixed(new)
    changed = [key for key, value in after.items() if key in before and value != before[key]]
    return changed + [f"redis.{name}" for name in started.other_redis.keys() ^ new.other_redis.keys()]


def _fixed(config: Config) -> dict[str, object]:
    found = {
        f"{section}.{name}": getattr(getattr(config, section), name)
        for section, names in _FIXED.items()
        for name in names
    }
    for name, redis in config.other_redis.items():
        found |= {_key(name, item): getattr(redis, item) for item in _FIXED["redis"]}
    return found


def _key(name: str, item: str) -> str:
    return f"redis.{item}" if name == DEFAULT else f"redis.{name}.{item}"


def _shown(redis: RedisConfig) -> str:
    url = mask_url(redis.url)
    return f"{url} namespace {redis.namespace}" if redis.namespace else url
