"""Configuration fields: one table with every key, its default, its rule and its description.

Read by the command line and the master, through ``config``. The frozen dataclasses are the table; ``options``
lists it. Nothing here reads a file or a variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from pyworkers.config.alarming import KINDS, about_match, about_over, about_when
from pyworkers.config.checks import (
    check_alarm_url,
    check_app,
    check_args,
    check_bind,
    check_every,
    check_hosts,
    check_issuer,
    check_label,
    check_mail,
    check_mask,
    check_namespace,
    check_networks,
    check_redirect_url,
    check_scopes,
    check_smtp,
    check_timezone,
    check_url,
    check_web_bind,
    check_web_prefix,
    mask_path,
    mask_text,
    mask_url,
)
from pyworkers.config.groups import MODES, check_processes, check_queues
from pyworkers.config.rights import check_groups
from pyworkers.config.thresholds import check_thresholds
from pyworkers.protocol.cronlines import check_grace, check_schedule
from pyworkers.protocol.flow.carrying import check_names
from pyworkers.protocol.keeping import check_keep
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.limits import parse_rate

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "json")


def _option(
    default: object,
    doc: str,
    *,
    key: str = "",
    minimum: float | None = None,
    choices: tuple[str, ...] = (),
    check: Callable[[Any], object] | None = None,
    mask: Callable[[str], str] | None = None,
    example: object = None,
    restart: bool = False,
) -> Any:
    """A field with its rules. ``key`` is its name in TOML where Python reserves the word.

    ``example`` is the value that a sample shows for a key without a default. ``restart``: a running server
    keeps its value at a reload; only a restart applies another one.

    A masked field is left out of the repr, too, so that no traceback and no log line shows it.
    """
    rules = {"minimum": minimum, "choices": choices, "check": check, "restart": restart}
    about = {"doc": doc, "key": key, "mask": mask, "example": example}
    return field(default=default, repr=mask is None, metadata={**about, **rules})


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """The section ``[redis]``, or ``[redis.NAME]``."""

    url: str = _option(
        "redis://127.0.0.1:6379/0",
        "URL of Redis: redis:// unix:// redis+sentinel:// redis+cluster:// embedded:DIR; with TLS rediss…://.",
        check=check_url,
        mask=mask_url,
        example="redis://10.0.0.2/0",
        restart=True,
    )
    namespace: str = _option(
        "", 'Prefix of every key, with its colon: "app:" or "{app}:".', check=check_namespace, restart=True
    )
    username: str = _option("", "User name, if the URL has none.", restart=True)
    password: str = _option("", "Password, if the URL has none.", mask=mask_text, restart=True)
    ca_file: str = _option(
        "", "With TLS: file with the certificates to trust; empty: the system's.", restart=True
    )
    cert_file: str = _option("", "With TLS: file with the client's certificate.", restart=True)
    key_file: str = _option("", "With TLS: file with the client's private key.", restart=True)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The section ``[server]``."""

    shutdown_timeout: float = _option(
        25.0, "Seconds that running jobs get to finish on shutdown.", minimum=0, restart=True
    )
    lease: float = _option(
        30.0,
        "Seconds without a renewal after which other servers recover the jobs of a server.",
        minimum=1,
        restart=True,
    )
    idle_timeout: float = _option(
        60.0, 'Seconds without a job after which a worker of processes = "auto" ends.', minimum=0.1
    )
    max_jobs_per_worker: int = _option(
        0, "Jobs after which a worker process is replaced; 0: never.", minimum=0
    )
    max_memory_mb: int = _option(
        0, "Private memory in MB above which a worker process is replaced; 0: no limit.", minimum=0
    )
    keep: tuple[int, ...] = _option(
        (),
        "Finished jobs to keep: about how many, for how many seconds, e.g. [1000, 86400]; empty: none.",
        check=check_keep,
    )
    keep_args: bool = _option(True, "Keep finished jobs with their arguments.")
    sidekiq6: bool = _option(
        False,
        "Also list the running jobs where the Web UI of Sidekiq up to 6.4.1 reads them (IDENTITY:workers).",
        restart=True,
    )


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One section ``[queues.NAME]``; None is the decorator's value."""

    concurrency: int | None = _option(
        None, "Jobs of this queue that run at a time, instead of the decorator's.", minimum=1, example=10
    )
    processes: int | str | None = _option(
        None,
        'Worker processes of the queue in the modes async and thread; in all modes "auto" or a range, "1-4".',
        check=check_processes,
        example="auto",
    )
    mode: str | None = _option(
        None,
        "Jobs in a worker process: process (one), async or thread (several).",
        choices=MODES,
        example="process",
    )
    timeout: float | None = _option(
        None, "Seconds that a job may run, instead of the decorator's; 0: no limit.", minimum=0, example=30.0
    )
    rate: str | None = _option(
        None,
        'Jobs of this queue that start in a period, over all servers: "10/s".',
        check=parse_rate,
        example="10/s",
    )
    max_running: int | None = _option(
        None, "Jobs of this queue that run at a time, over all servers.", minimum=1, example=3
    )
    ordered: bool | None = _option(
        None, "Run its jobs one at a time over all servers, in the order of the queue.", example=True
    )
    skip_dead: bool | None = _option(
        None, "An ordered queue continues after a job that is dead; false: it is paused.", example=True
    )
    keep: tuple[int, ...] | None = _option(
        None,
        "The finished jobs of this queue to keep, instead of the decorator's and the server's; empty: none.",
        check=check_keep,
        example=(1000, 86400),
    )
    keep_args: bool | None = _option(
        None, "Keep finished jobs of this queue with their arguments.", example=False
    )
    redis: str | None = _option(
        None, "Name of the Redis that has this queue, from [redis.NAME].", example="archive"
    )


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """One section ``[groups.NAME]``; None is the application's value."""

    queues: tuple[str, ...] | Mapping[str, int] | None = _option(
        None,
        "The queues: a list in strict order, or a table with the weight of each.",
        check=check_queues,
        example=("critical", "low"),
    )
    concurrency: int | None = _option(None, "Jobs of the group that run at a time.", minimum=1, example=10)
    processes: int | str | None = _option(
        None,
        'Worker processes of the group in the modes async and thread; in all modes "auto" or a range, "1-4".',
        check=check_processes,
        example="auto",
    )
    mode: str | None = _option(
        None,
        "process, async or thread; without one async if all jobs are async def, else process.",
        choices=MODES,
        example="thread",
    )
    redis: str | None = _option(
        None, "Name of the Redis that has all queues of the group, from [redis.NAME].", example="archive"
    )


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """The section ``[retry]``."""

    max: int = _option(25, "Retries of a job with retry = true in its envelope.", minimum=0)
    backtrace: int = _option(
        20,
        "Lines of the traceback stored with a failed job, unless it or its handler sets backtrace; 0: none.",
        minimum=0,
    )
    drain_goretry: bool = _option(
        False, "Also run the retries that go-workers left in its goretry set.", restart=True
    )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """The section ``[scheduler]``."""

    poll_interval: float = _option(
        1.0,
        "Seconds between two reads of the scheduled and retry sets where Redis announces no changes.",
        minimum=0.01,
        restart=True,
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
        choices=LOG_LEVELS,
    )
    format: str = _option(
        "auto",
        "console, json, or auto: console on a terminal, json elsewhere.",
        choices=LOG_FORMATS,
    )
    carry: tuple[str, ...] = _option(
        (),
        'Variables of structlog\'s context that jobs carry into their log lines, e.g. ["request_id"].',
        check=check_names,
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The section ``[http]``."""

    bind: str = _option(
        "",
        'Address of /stats /livez /readyz /metrics, e.g. "127.0.0.1:7433"; empty: none.',
        check=check_bind,
        restart=True,
    )
    hosts: tuple[str, ...] = _option(
        (),
        'Host names that clients may use, besides loopback and IP addresses, e.g. ["jobs.internal"].',
        check=check_hosts,
        restart=True,
    )
    stats: bool = _option(True, "Serve /stats, which shows the arguments of running jobs.", restart=True)


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """The section ``[web.oidc]``: a provider of OpenID Connect, by which people log in to the dashboard."""

    issuer: str | None = _option(
        None,
        "URL of the provider as its discovery document has it.",
        check=check_issuer,
        example="https://id.example.com",
    )
    client_id: str | None = _option(
        None, "Id of the dashboard at the provider.", check=check_label, example="pyworkers"
    )
    client_secret: str | None = _option(
        None,
        "Secret of the dashboard at the provider; PYWORKERS_WEB__OIDC__CLIENT_SECRET keeps it out of files.",
        mask=mask_text,
        example="a secret",
    )
    name: str = _option("", "Name of the provider on the login page; empty: its host.")
    scopes: tuple[str, ...] = _option(
        ("openid", "profile", "email"), "Scopes that the login asks for.", check=check_scopes
    )
    name_claim: str = _option(
        "preferred_username", "Claim with the name of a person, for the audit.", check=check_label
    )
    groups_claim: str = _option(
        "groups",
        "Claim with the groups of a person; dots separate the names of nested claims.",
        check=check_label,
    )
    redirect_url: str = _option(
        "",
        "Address of the dashboard's /login/oidc/callback; empty: the scheme and host of the request.",
        check=check_redirect_url,
    )
    groups: Mapping[str, str] | None = _option(
        None,
        "Role of the people in each group: read, operate, or operate@mail*.",
        check=check_groups,
        example={"platform": "operate", "support": "operate@mail*"},
    )


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The section ``[web]``, for ``pyworkers web``; a server uses only ``mask``, for ``/stats``."""

    bind: str = _option(
        "127.0.0.1:7440",
        "Address of the dashboard: host:port, [IPv6]:port or unix:PATH.",
        check=check_web_bind,
    )
    auth: str = _option(
        "", "File with the users of the dashboard, lines of `pyworkers web-user`; empty: loopback only."
    )
    hosts: tuple[str, ...] = _option(
        (),
        'Host names that browsers may use, besides loopback and bind, e.g. ["jobs.example.com"].',
        check=check_hosts,
    )
    prefix: str = _option(
        "",
        'Path of the dashboard behind a proxy, kept or stripped by the proxy, e.g. "/jobs"; empty: none.',
        check=check_web_prefix,
    )
    mask: tuple[str, ...] = _option(
        ("password", "passwd", "secret", "token", "api_key", "authorization", "card"),
        "Names of keys in arguments, at any depth, whose values the dashboard and /stats do not show.",
        check=check_mask,
    )
    thresholds: tuple[str, ...] = _option(
        (),
        'Counts above these numbers are red, e.g. ["waiting > 10000", "mail* oldest > 300"].',
        check=check_thresholds,
    )
    oidc: OidcConfig = field(default_factory=OidcConfig)
    """The table ``[web.oidc]``."""

    @property
    def has_people(self) -> bool:
        """True if people log in: the users of a file, or those whom a provider knows."""
        return bool(self.auth or self.oidc.issuer)


@dataclass(frozen=True, slots=True, kw_only=True)
class CronConfig:
    """One ``[[cron]]`` entry."""

    name: str = _option(
        MISSING, "Name of the entry; each of its slots fires once.", check=check_label, example="nightly"
    )
    schedule: str | None = _option(
        None,
        "When it fires: a cron line, or @daily, @hourly and others.",
        check=check_schedule,
        example="0 3 * * *",
    )
    every: str | None = _option(
        None,
        'Instead of schedule: the time from one slot to the next, as "30s", "5m", "2h", "1d".',
        check=check_every,
        example="30s",
    )
    queue: str = _option("default", "Queue that the job goes to.", check=check_queue_name)
    job_class: str = _option(MISSING, "Class of the job.", key="class", check=check_label, example="greet")
    args: tuple[object, ...] = _option((), "Arguments of the job, JSON values.", check=check_args)
    timezone: str = _option(
        "UTC", "Time zone of the schedule by its IANA name, e.g. Europe/Paris.", check=check_timezone
    )
    misfire: str = _option(
        "once",
        "What happens to the slots missed while no server ran: skip, once (the last one) or all.",
        choices=("skip", "once", "all"),
    )
    grace: float = _option(
        300.0, "Seconds after which a missed slot is dropped.", minimum=0, check=check_grace
    )


@dataclass(frozen=True, slots=True)
class AlarmsConfig:
    """The section ``[alarms]``: how ``pyworkers alarms`` sends; a server ignores it."""

    interval: float = _option(10.0, "Seconds between two checks.", minimum=1)
    secret: str = _option(
        "", "Key of the signatures of webhooks; empty: they are not signed.", mask=mask_text
    )
    smtp: str = _option(
        "",
        "Server for mail: smtp://USER:PASSWORD@HOST:587 (STARTTLS), smtps://… (TLS); empty: no mail.",
        check=check_smtp,
        mask=mask_url,
    )
    sender: str = _option("", "Address from which mail is sent.", check=check_mail)
    private: tuple[str, ...] = _option(
        (),
        'Networks that are not public, in which webhooks and the mail server may be: ["10.0.0.0/8"].',
        check=check_networks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmConfig:
    """One ``[[alarm]]``."""

    name: str = _option(
        MISSING, "Name of the alarm, in its messages.", check=check_label, example="mail is late"
    )
    when: str = _option(
        MISSING,
        about_when(),
        choices=tuple(KINDS),
        example="latency",
    )
    match: str | None = _option(None, about_match(), example="mail*")
    over: float | None = _option(None, about_over(), minimum=0, example=300.0)
    lasts: float = _option(
        0.0, "Seconds for which the condition must be true before it begins.", key="for", minimum=0
    )
    webhook: str | None = _option(
        None,
        "URL that gets a POST with JSON, signed.",
        check=check_alarm_url,
        mask=mask_path,
        example="https://ops.example.com/alarms",
    )
    slack: str | None = _option(
        None,
        "URL of an incoming webhook of Slack, or of a program that takes the same JSON.",
        check=check_alarm_url,
        mask=mask_path,
        example="https://hooks.slack.com/services/T0/B0/x",
    )
    mail: str | None = _option(None, "Address that gets a mail.", check=check_mail, example="ops@example.com")


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration, built once by ``config.load`` and passed down; ``path`` is its file."""

    app: str | None = _option(
        None,
        "module:attribute of the Worker that the jobs belong to.",
        check=check_app,
        example="tasks:worker",
    )
    redis: RedisConfig = field(default_factory=RedisConfig)
    other_redis: Mapping[str, RedisConfig] = field(default_factory=dict)
    """The tables ``[redis.NAME]``."""
    server: ServerConfig = field(default_factory=ServerConfig)
    queues: Mapping[str, QueueConfig] = field(default_factory=dict)
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    retry: RetryConfig = field(default_factory=RetryConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    encryption: EncryptionConfig = field(default_factory=EncryptionConfig)
    log: LogConfig = field(default_factory=LogConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    web: WebConfig = field(default_factory=WebConfig)
    cron: tuple[CronConfig, ...] = ()
    alarms: AlarmsConfig = field(default_factory=AlarmsConfig)
    alarm: tuple[AlarmConfig, ...] = ()
    path: Path | None = field(default=None, compare=False)
