"""Reloading: the configuration of a running server, and the one that its next load of the application uses.

Used by the master. A server keeps the values that its connections, sockets and intervals were made with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from pyworkers.config.checks import mask_url
from pyworkers.config.fields import Config, HttpConfig, RedisConfig, SchedulerConfig
from pyworkers.errors import ConfigError

_FIXED = {
    "redis": [item.name for item in fields(RedisConfig)],
    "server": ["shutdown_timeout", "lease", "sidekiq6"],
    "retry": ["drain_goretry"],
    "scheduler": [item.name for item in fields(SchedulerConfig)],
    "http": [item.name for item in fields(HttpConfig)],
}


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
        """That of the latest load of the application."""
        self.offered: RedisConfig | None = None
        """Another Redis that was read last. It may be used if its data are the same."""

    @property
    def embedded(self) -> bool:
        """True if this server runs its own Redis."""
        return self.current.redis.url != self._started.redis.url

    @property
    def shown_redis(self) -> str:
        """The URL of Redis as it was configured, without its password."""
        return mask_url(self._started.redis.url)

    def read_again(self) -> list[str]:
        """Read the sources for the next load. Returns the keys with a change that only a restart applies.

        Raises ConfigError.
        """
        new = self._read()
        if new.app is None:
            raise ConfigError("no application", hint='set app = "module:attribute" in the configuration')
        self._pending = with_fixed_of(new, self.current)
        self.offered = self._offered(new.redis)
        before = _fixed(self._started)
        return [key for key, value in _fixed(new).items() if value != before[key]]

    def _offered(self, new: RedisConfig) -> RedisConfig | None:
        """The new Redis, unless it is the same one, has other keys, or is an embedded one."""
        before = self._started.redis
        embedded = self.embedded or new.url.startswith("embedded:")
        return None if embedded or new == before or new.namespace != before.namespace else new

    def move_to(self, redis: RedisConfig) -> None:
        """Use another Redis from now on."""
        self._started = replace(self._started, redis=redis)
        self.current = replace(self.current, redis=redis)
        if self._pending is not None:
            self._pending = replace(self._pending, redis=redis)

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
        self.current = replace(config, redis=self.current.redis)


def with_fixed_of(new: Config, running: Config) -> Config:
    """The new configuration with the values of the running one that only a restart changes."""
    kept: dict[str, Any] = {
        section: {name: getattr(getattr(running, section), name) for name in names}
        for section, names in _FIXED.items()
    }
    return replace(
        new, **{section: replace(getattr(new, section), **values) for section, values in kept.items()}
    )


def _fixed(config: Config) -> dict[str, object]:
    return {
        f"{section}.{name}": getattr(getattr(config, section), name)
        for section, names in _FIXED.items()
        for name in names
    }
