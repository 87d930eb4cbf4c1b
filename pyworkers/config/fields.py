"""Configuration fields: one table with every key, its default, its rule and its description.

Read by the command line and the master, through ``config``. The frozen dataclasses are the table;
``describe`` lists it. Nothing here reads a file or a variable.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pyworkers.config.groups import MODES, check_queues
from pyworkers.protocol.cron import check_schedule
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.limits import parse_rate

_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|auth|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
# From the first colon after the scheme to the *last* @: real passwords hold @ and /, and a sentinel URL may
# have one password per host. For a URL with an @ further right, the host is masked, too, but no secret is
# shown. No possessive quantifier: with one, Python 3.11.2 leaves secrets unmasked.
_USERINFO = re.compile(r"\A(?!embedded:)([^/?#]*?://|(?![^/?#]*?://))([^:]*):.*@", re.DOTALL)
_HOST = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+")


def mask_url(url: str) -> str:
    """The URL with every password replaced by ``***``. For display; the URL may be malformed."""
    return _USERINFO.sub(r"\1\2:***@", _SECRET_PARAMETER.sub(r"\1***", url))


def _mask_text(secret: str) -> str:
    return "***" if secret else ""


# Each check raises ValueError with the rule. None quotes a secret.


def _check_app(app: str) -> None:
    if not re.fullmatch(r"[\w.]+:[\w.]+", app):
        raise ValueError(f"must be module:attribute, e.g. tasks:worker, not {app!r}")


def _check_url(url: str) -> None:
    scheme, _, rest = url.partition(":" if url.startswith("embedded:") else "://")
    if scheme not in ("redis", "rediss", "unix", "redis+sentinel", "embedded") or not rest:
        schemes = "redis://, rediss://, unix://, redis+sentinel://, embedded:DIR"
        raise ValueError(f"{mask_url(url)!r} is not a Redis URL: use {schemes}")
    if scheme in ("redis", "rediss") and not _has_valid_port(url):
        raise ValueError(f"{mask_url(url)!r} has an invalid port (in a password, write / ? # as %2F %3F %23)")


def _has_valid_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:  # not passed on: its text may quote a part of the password
        return False


def _check_namespace(namespace: str) -> None:
    if not re.fullmatch(r"(\S*:)?", namespace):
        raise ValueError(f"must be empty or end with a colon, without white space, not {namespace!r}")


def _check_bind(bind: str) -> None:
    host, _, port = bind.rpartition(":")
    valid_port = re.fullmatch(r"[0-9]{1,5}", port) and 1 <= int(port) <= 65535
    if bind and not (valid_port and _HOST.fullmatch(host)):
        raise ValueError(f"must be empty or host:port with a port from 1 to 65535, not {bind!r}")


def _check_label(text: str) -> None:
    if not text or not text.isprintable():
        raise ValueError(f"must be printable and not empty, not {text!r}")


def _check_timezone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (LookupError, ValueError, OSError) as exc:  # OSError: "Europe" is a folder
        close = difflib.get_close_matches(name, available_timezones(), n=1)
        near = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"{name!r} is not a time zone{near}") from exc


def _check_every(period: str) -> None:
    check_schedule(f"every {period}")


def _check_rate(rate: str) -> None:
    parse_rate(rate)


def _check_args(args: tuple[object, ...]) -> None:
    try:
        json.dumps(args, allow_nan=False)
    except TypeError as exc:  # a TOML date
        raise ValueError(f"must be JSON values: {exc}") from exc


def _option(
    default: object,
    doc: str,
    *,
    key: str = "",
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], None] | None = None,
    mask: Callable[[str], str] | None = None,
) -> Any:
    """A field with its rules. ``key`` is its name in TOML where Python reserves the word.

    A masked field is left out of the repr, too, so that no traceback and no log line shows it.
    """
    about = {"doc": doc, "key": key, "minimum": minimum, "choices": choices, "check": check, "mask": mask}
    return field(default=default, repr=mask is None, metadata=about)


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """The section ``[redis]``."""

    url: str = _option(
        "redis://127.0.0.1:6379/0",
        "Where the jobs are: redis:// rediss:// unix:// redis+sentinel:// embedded:DIR.",
        check=_check_url,
        mask=mask_url,
    )
    namespace: str = _option(
        "", 'Prefix of every key, with its colon: "app:" or "{app}:".', check=_check_namespace
    )
    username: str = _option("", "User name, if the URL holds none.")
    password: str = _option("", "Password, if the URL holds none.", mask=_mask_text)
    ca_file: str = _option("", "rediss://: file with the certificates to trust; empty: the system's.")
    cert_file: str = _option("", "rediss://: file with the client's certificate.")
    key_file: str = _option("", "rediss://: file with the client's private key.")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The section ``[server]``."""

    shutdown_timeout: float = _option(25.0, "Seconds that running jobs get to finish on shutdown.", minimum=0)
    lease: float = _option(
        30.0, "Seconds without a renewal after which peers recover the jobs of a server.", minimum=1
    )
    max_jobs_per_worker: int = _option(
        0, "Jobs after which a worker process is replaced; 0: never.", minimum=0
    )
    max_memory_mb: int = _option(
        0, "Private memory in MB above which a worker process is replaced; 0: no limit.", minimum=0
    )
    sidekiq6: bool = _option(
        False,
        "Also list the running jobs where the Web UI of Sidekiq up to 6.4.1 reads them (IDENTITY:workers).",
    )


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One section ``[queues.NAME]``; None is the decorator's value."""

    concurrency: int | None = _option(
        None, "Jobs of this queue that run at a time, instead of the decorator's.", minimum=1
    )
    processes: int | None = _option(
        None, "Worker processes of this queue in the modes async and thread.", minimum=1
    )
    mode: str | None = _option(
        None, "What a worker process holds: process (one job), async or thread (several).", choices=MODES
    )
    timeout: float | None = _option(
        None, "Seconds that a job may run, instead of the decorator's; 0: no limit.", minimum=0
    )
    rate: str | None = _option(
        None, 'Jobs of this queue that start in a period, over all servers: "10/s".', check=_check_rate
    )
    max_running: int | None = _option(
        None, "Jobs of this queue that run at a time, over all servers.", minimum=1
    )
    ordered: bool | None = _option(
        None, "Run its jobs one at a time over all servers, in the order of the queue."
    )
    skip_dead: bool | None = _option(
        None, "An ordered queue continues after a job that is dead; false: it is paused."
    )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One section ``[groups.NAME]``; None is the application's value."""

    queues: tuple[str, ...] | Mapping[str, int] | None = _option(
        None, "The queues: a list in strict order, or a table with the weight of each.", check=check_queues
    )
    concurrency: int | None = _option(None, "Jobs of the group that run at a time.", minimum=1)
    processes: int | None = _option(
        None, "Worker processes of the group in the modes async and thread; they share its jobs.", minimum=1
    )
    mode: str | None = _option(
        None,
        "process, async or thread; without one async if all jobs are async def, else process.",
        choices=MODES,
    )


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """The section ``[retry]``."""

    max: int = _option(25, "Retries of a job whose envelope says retry = true.", minimum=0)
    drain_goretry: bool = _option(False, "Also run the retries that go-workers left in its goretry set.")


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The section ``[scheduler]``."""

    poll_interval: float = _option(
        1.0,
        "Seconds between two reads of the scheduled and retry sets where Redis announces no changes.",
        minimum=0.01,
    )


@dataclass(frozen=True, slots=True)
class EncryptionConfig:
    """The section ``[encryption]``."""

    keys: str = _option(
        "", "File with the keys of encrypted arguments: 32 bytes in base64 a line, the newest first."
    )


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The section ``[log]``."""

    level: str = _option(
        "info",
        "Least important events to log: debug, info, warning or error.",
        choices=("debug", "info", "warning", "error"),
    )
    format: str = _option(
        "auto",
        "console, json, or auto: console on a terminal, json elsewhere.",
        choices=("auto", "console", "json"),
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The section ``[http]``."""

    bind: str = _option(
        "",
        'Address of /stats /livez /readyz /metrics, e.g. "127.0.0.1:7433"; empty: none.',
        check=_check_bind,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CronConfig:
    """One ``[[cron]]`` entry."""

    name: str = _option(MISSING, "Name of the entry; each of its slots fires once.", check=_check_label)
    schedule: str | None = _option(
        None, "When it fires: a cron line, or @daily and the like.", check=check_schedule
    )
    every: str | None = _option(
        None,
        'Instead of schedule: the time from one slot to the next, as "30s", "5m", "2h", "1d".',
        check=_check_every,
    )
    queue: str = _option("default", "Queue that the job goes to.", check=check_queue_name)
    job_class: str = _option(MISSING, "Class of the job.", key="class", check=_check_label)
    args: tuple[object, ...] = _option((), "Arguments of the job, JSON values.", check=_check_args)
    timezone: str = _option(
        "UTC", "Time zone of the schedule by its IANA name, e.g. Europe/Paris.", check=_check_timezone
    )
    misfire: str = _option(
        "once",
        "What happens to the slots missed while no server ran: skip, once (the last one) or all.",
        choices=("skip", "once", "all"),
    )
    grace: float = _option(300.0, "Seconds for which a slot counts as late, not as missed.", minimum=0)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, built once by ``config.load`` and passed down; ``path`` is its file."""

    app: str | None = _option(
        None, "module:attribute of the Worker that the jobs belong to.", check=_check_app
    )
    redis: RedisConfig = field(default_factory=RedisConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    retry: RetryConfig = field(default_factory=RetryConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    encryption: EncryptionConfig = field(default_factory=EncryptionConfig)
    log: LogConfig = field(default_factory=LogConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    cron: tuple[CronConfig, ...] = ()
    path: Path | None = field(default=None, compare=False)


KeyPath = tuple[str, ...]
# The place of each dataclass in the file; * is the name of a queue or group, or the number of a cron entry.
SECTIONS: tuple[tuple[KeyPath, type[Any]], ...] = (
    ((), Config),
    (("redis",), RedisConfig),
    (("server",), ServerConfig),
    (("queues", "*"), QueueConfig),
    (("groups", "*"), GroupConfig),
    (("retry",), RetryConfig),
    (("scheduler",), SchedulerConfig),
    (("encryption",), EncryptionConfig),
    (("log",), LogConfig),
    (("http",), HttpConfig),
    (("cron", "*"), CronConfig),
)
_TYPE_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "tuple[str, ...] | Mapping[str, int]": "array or table",
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
                required = item.default is MISSING
                yield Option(
                    path=(*section, about.pop("key") or item.name),
                    attribute=item.name,
                    # Annotations are text here, because of the future import.
                    type=_TYPE_NAMES.get(str(item.type).removesuffix(" | None"), "array"),
                    default=None if required else item.default,
                    required=required,
                    **about,
                )
