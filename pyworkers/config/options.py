"""Configuration options: every key with its place in the file, its type and its rules, from the fields.

Read by the command line and the master, through ``config``, and by the documents. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from pyworkers.config.fields import (
    AlarmConfig,
    AlarmsConfig,
    Config,
    CronConfig,
    EncryptionConfig,
    GroupConfig,
    HttpConfig,
    LogConfig,
    OidcConfig,
    QueueConfig,
    RedisConfig,
    RetryConfig,
    SchedulerConfig,
    ServerConfig,
    WebConfig,
)

KeyPath = tuple[str, ...]
# The place of each dataclass in the file; * is the name of a Redis, queue or group, or a number in a list.
SECTIONS: tuple[tuple[KeyPath, type[Any]], ...] = (
    ((), Config),
    (("redis",), RedisConfig),
    (("redis", "*"), RedisConfig),
    (("server",), ServerConfig),
    (("queues", "*"), QueueConfig),
    (("groups", "*"), GroupConfig),
    (("retry",), RetryConfig),
    (("scheduler",), SchedulerConfig),
    (("encryption",), EncryptionConfig),
    (("log",), LogConfig),
    (("http",), HttpConfig),
    (("web",), WebConfig),
    (("web", "oidc"), OidcConfig),
    (("cron", "*"), CronConfig),
    (("alarms",), AlarmsConfig),
    (("alarm", "*"), AlarmConfig),
)
# What one table of several must have, although the dataclass has a default.
_REQUIRED = {("redis", "*", "url")}
LISTS = ("cron", "alarm")
"""The sections that are lists of tables, ``[[cron]]``."""
_TYPE_NAMES = {
    "str": "string",
    "int": "integer",
    "int | str": "integer or string",
    "float": "number",
    "bool": "boolean",
    "tuple[str, ...] | Mapping[str, int]": "array or table",
    "Mapping[str, str]": "table",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One configuration key. ``type`` is the TOML name of its type; ``default`` is None if it has none."""

    path: KeyPath
    attribute: str
    type: str
    default: object
    required: bool
    doc: str
    minimum: float | None
    choices: tuple[str, ...]
    check: Callable[[Any], None] | None
    mask: Callable[[str], str] | None
    example: object
    restart: bool
    """True if a reload does not change it in a running server."""

    @property
    def key(self) -> str:
        """The dotted key, e.g. ``redis.url`` or ``queues.*.timeout``."""
        return ".".join(self.path)


Options = Mapping[KeyPath, Option]


def describe() -> Iterator[Option]:
    """Yield every key of the configuration, in the order of the sample file."""
    for section, cls in SECTIONS:
        for item in fields(cls):
            if item.metadata:
                about = dict(item.metadata)
                path = (*section, about.pop("key") or item.name)
                required = item.default is MISSING or path in _REQUIRED
                yield Option(
                    path=path,
                    attribute=item.name,
                    # Annotations are text here, because of the future import.
                    type=_TYPE_NAMES.get(str(item.type).removesuffix(" | None"), "array"),
                    default=None if required else item.default,
                    required=required,
                    **about,
                )
