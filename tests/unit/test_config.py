"""The configuration: precedence, errors that say where and what, masking, and the sample file."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import get_type_hints

import pytest

from pyworkers.config import sources
from pyworkers.config.checks import mask_url
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
from pyworkers.config.loading import load, render, toml_value
from pyworkers.config.options import describe
from pyworkers.config.sample import sample
from pyworkers.config.stores import Stores
from pyworkers.errors import ConfigError

SAMPLE = Path(__file__).parents[2] / "conf" / "workers.toml"

CRON = """
[[cron]]
name = "sweep"
schedule = "*/5 * * * *"
class = "Sweep"
"""


Toml = Callable[..., Config]


@pytest.fixture
def toml(tmp_path: Path) -> Toml:
    """Load a text as if it were the file ``workers.toml``."""

    def load_text(text: str, env: Mapping[str, str] | None = None, **overrides: object) -> Config:
        path = tmp_path / "workers.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, env=env or {}, overrides=overrides)

    return load_text


def load_error(toml: Toml, text: str, **env: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        toml(text, env)
    return caught.value


# Loading


def test_without_any_source_every_key_has_its_default() -> None:
    assert load(None, env={}) == Config(
        app=None,
        redis=RedisConfig(
            url="redis://127.0.0.1:6379/0",
            namespace="",
            username="",
            password="",
            ca_file="",
            cert_file="",
            key_file="",
        ),
        server=ServerConfig(shutdown_timeout=25.0, lease=30.0, max_jobs_per_worker=0, max_memory_mb=0),
        queues={},
        groups={},
        retry=RetryConfig(max=25, drain_goretry=False),
        scheduler=SchedulerConfig(poll_interval=1.0),
        encryption=EncryptionConfig(keys=""),
        log=LogConfig(level="info", format="auto"),
        http=HttpConfig(bind=""),
        web=WebConfig(bind="127.0.0.1:7440", auth="", hosts=(), prefix="", mask=WebConfig().mask),
        cron=(),
        path=None,
    )


def test_the_file_sets_what_it_names_and_the_rest_stays(toml: Toml, tmp_path: Path) -> None:
    config = toml(
        'app = "tasks:worker"\n[server]\nlease = 12\n[queues.mail]\nconcurrency = 3\n[queues."a.b"]\n'
    )
    assert config.app == "tasks:worker"
    assert config.server == ServerConfig(lease=12.0)
    assert config.queues == {"mail": QueueConfig(concurrency=3), "a.b": QueueConfig()}
    assert config.path == tmp_path / "workers.toml"


def test_an_integer_in_a_field_for_seconds_becomes_a_float(toml: Toml) -> None:
    assert repr(toml("[server]\nlease = 12").server.lease) == "12.0"


def test_a_cron_entry_has_a_default_for_all_but_name_schedule_and_class(toml: Toml) -> None:
    assert toml(CRON).cron == (
        CronConfig(
            name="sweep",
            schedule="*/5 * * * *",
            queue="default",
            job_class="Sweep",
            args=(),
            timezone="UTC",
            misfire="once",
            grace=300.0,
        ),
    )


def test_a_cron_entry_takes_every_key(toml: Toml) -> None:
    text = 'queue = "mail"\nargs = [1, "a", {b = [true]}]\ntimezone = "Europe/Paris"\n'
    assert toml(CRON + text + 'misfire = "all"\ngrace = 5').cron == (
        CronConfig(
            name="sweep",
            schedule="*/5 * * * *",
            queue="mail",
            job_class="Sweep",
            args=(1, "a", {"b": [True]}),
            timezone="Europe/Paris",
            misfire="all",
            grace=5.0,
        ),
    )


def test_cron_entries_keep_the_order_of_the_file(toml: Toml) -> None:
    config = toml(CRON + CRON.replace('"sweep"', '"again"'))
    assert [entry.name for entry in config.cron] == ["sweep", "again"]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (Config(), "app"),
        (RedisConfig(), "url"),
        (ServerConfig(), "lease"),
        (QueueConfig(), "timeout"),
        (GroupConfig(), "queues"),
        (RetryConfig(), "max"),
        (SchedulerConfig(), "poll_interval"),
        (LogConfig(), "level"),
        (HttpConfig(), "bind"),
        (CronConfig(name="a", schedule="@daily", job_class="A"), "queue"),
        (next(describe()), "doc"),
    ],
)
def test_a_configuration_cannot_be_changed(part: object, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(part, name, None)


def test_no_line_is_searched_without_an_error(toml: Toml, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[object] = []

    def location(_: sources.Document, path: object) -> str:
        searched.append(path)
        return "here"

    monkeypatch.setattr(sources.Document, "location", location)
    text = "".join(f"[queues.q{number}]\ntimeout = 5\n" for number in range(400))
    found = toml(f'{text}[groups.g]\nqueues = ["q1"]\n{CRON}')
    assert len(found.queues) == 400
    assert searched == []
    with pytest.raises(ConfigError, match="here: "):
        toml(f"{text}retries = 5\n")
    assert searched == [("queues", "q399", "retries")]


def test_a_configuration_without_cron_entries_does_not_import_croniter(
    toml: Toml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "croniter", None)  # an import of it fails now
    assert load(SAMPLE, env={}).cron == ()
    with pytest.raises(ImportError):
        toml(CRON.replace("*/5 * * * *", "1 2 3 4 *"))  # a line that nothing has parsed before


# Several Redis servers

ARCHIVE = '[redis.archive]\nurl = "redis://10.0.0.2/0"\n'


def test_a_queue_is_on_the_redis_that_its_table_or_that_of_its_group_names(toml: Toml) -> None:
    text = '[queues.reports]\nredis = "archive"\n[groups.old]\nqueues = ["a", "b"]\nredis = "archive"\n'
    stores = Stores.of(toml(ARCHIVE + text))
    assert list(stores.by_name) == ["default", "archive"]
    assert [stores.name_of(queue) for queue in ("reports", "a", "b", "other")] == [
        *["archive"] * 3,
        "default",
    ]
    assert stores.redis_of("a") == RedisConfig(url="redis://10.0.0.2/0")
    assert Stores.of(Config()) == Stores({"default": RedisConfig()})


def test_variables_and_the_command_line_set_another_redis(toml: Toml) -> None:
    env = {"PYWORKERS_REDIS__ARCHIVE__PASSWORD": "p", "PYWORKERS_QUEUES__REPORTS__REDIS": "archive"}
    config = toml(ARCHIVE, env, **{"redis.archive.namespace": "a:"})
    assert config.other_redis == {"archive": RedisConfig("redis://10.0.0.2/0", "a:", password="p")}
    assert config.queues == {"reports": QueueConfig(redis="archive")}
    alone = load(None, env={"PYWORKERS_REDIS__OLD__URL": "redis://old"})
    assert alone.other_redis == {"old": RedisConfig("redis://old")}


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ('[queues.q]\nredis = "archiv"', 4, "queues.q.redis: there is no Redis 'archiv'", "[redis.archiv]"),
        ('[groups.g]\nqueues = ["q"]\nredis = "x"', 5, "groups.g.redis: there is no Redis 'x'", "[redis.x]"),
        (
            '[groups.g]\nredis = "archive"',
            4,
            "groups.g.redis: the queues of the group are not",
            "queues = […]",
        ),
        ("[redis.old]\nnamespace = 'a:'", 3, "redis.old.url: is missing", "[redis.old]"),
        ("[redis.default]\nurl = 'redis://x'", 3, "default is the Redis of the table [redis]", ""),
        ("[redis.'a.b']\nurl = 'redis://x'", 3, "letters, digits, _ and -", ""),
        ("[redis.old]\nurl = 'redis://10.0.0.2/0'", 4, "redis.old: is the same Redis", "namespace"),
        ("[redis.old]\nulr = 'redis://x'", 4, "unknown key redis.old.ulr", "did you mean redis.old.url?"),
    ],
)
def test_a_bad_choice_of_a_redis_is_named_with_its_line_and_the_fix(
    toml: Toml, text: str, line: int, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        toml(ARCHIVE + text)
    assert f"workers.toml:{line}: " in str(caught.value)
    assert message in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://h:6379/0", "redis://H", True),
        ("redis://:secret@h", "redis://h/?db=0&socket_timeout=3", True),
        ("redis+sentinel://a,b:26379/main", "redis+sentinel://b,a:26379/main/0", True),
        ("redis+cluster://[::1],b", "redis+cluster://b:6379,[::1]:6379/0", True),
        ("redis://localhost", "redis://127.0.0.1:6379/0", True),
        ("redis://h/1?db=2", "redis://h/2", True),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0", True),
        ("redis://h", "redis://h/1", False),
        ("redis://h", "redis://h:6380", False),
        ("redis+sentinel://a/main", "redis+sentinel://a/other", False),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=1", False),
        ("embedded:a", "embedded:a", True),
        ("embedded:a", "embedded:b", False),
    ],
)
def test_one_redis_is_recognized_in_two_urls(one: str, other: str, same: bool) -> None:
    stores = Stores({"default": RedisConfig(one, "a:"), "archive": RedisConfig(other, "a:")})
    assert list(stores.same()) == ([("default", "archive")] if same else [])


@pytest.mark.parametrize(
    "text",
    [
        '[queues.a]\nredis = "archive"\n[groups.g]\nqueues = ["a", "b"]',
        '[queues.a]\nredis = "default"\n[groups.g]\nqueues = ["a"]\nredis = "archive"',
    ],
)
def test_a_group_on_two_redis_servers_is_refused(toml: Toml, text: str) -> None:
    line = (ARCHIVE + text).splitlines().index("[groups.g]") + 2
    with pytest.raises(ConfigError, match=rf"\.toml:{line}: the group 'g' is on two Redis servers"):
        toml(ARCHIVE + text)


# Precedence and the environment


def test_the_command_line_wins_over_environment_over_redis_url_over_file_over_default(toml: Toml) -> None:
    text = '[redis]\nurl = "redis://file"'
    foreign = {"REDIS_URL": "redis://foreign"}
    ours = foreign | {"PYWORKERS_REDIS__URL": "redis://ours"}
    assert load(None, env={}).redis.url == "redis://127.0.0.1:6379/0"
    assert toml(text).redis.url == "redis://file"
    assert toml(text, foreign).redis.url == "redis://foreign"
    assert toml(text, ours).redis.url == "redis://ours"
    assert toml(text, ours, **{"redis.url": "redis://line"}).redis.url == "redis://line"


@pytest.mark.parametrize("url", ["", "http://bad"])
def test_redis_url_does_not_matter_when_we_are_told_better(url: str) -> None:
    env = {"REDIS_URL": url, "PYWORKERS_REDIS__URL": "redis://ours"}
    assert load(None, env=env).redis.url == "redis://ours"
    assert (
        load(None, env={"REDIS_URL": url}, overrides={"redis.url": "redis://line"}).redis.url
        == "redis://line"
    )


def test_an_empty_redis_url_counts_as_not_set() -> None:
    assert load(None, env={"REDIS_URL": ""}).redis.url == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("PYWORKERS_APP", "tasks:worker", Config(app="tasks:worker")),
        ("PYWORKERS_REDIS__PASSWORD", "1234", Config(redis=RedisConfig(password="1234"))),
        ("PYWORKERS_SERVER__LEASE", "12", Config(server=ServerConfig(lease=12.0))),
        ("PYWORKERS_SERVER__MAX_MEMORY_MB", "512", Config(server=ServerConfig(max_memory_mb=512))),
        ("PYWORKERS_RETRY__DRAIN_GORETRY", "true", Config(retry=RetryConfig(drain_goretry=True))),
        ("PYWORKERS_RETRY__DRAIN_GORETRY", "On", Config(retry=RetryConfig(drain_goretry=True))),
        ("PYWORKERS_RETRY__DRAIN_GORETRY", "0", Config(retry=RetryConfig(drain_goretry=False))),
        ("PYWORKERS_QUEUES__MAIL__CONCURRENCY", "3", Config(queues={"mail": QueueConfig(concurrency=3)})),
        ("PYWORKERS_QUEUES__MY__MAIL__TIMEOUT", "3", Config(queues={"my__mail": QueueConfig(timeout=3.0)})),
        ("PYWORKERS_GROUPS__WEB__QUEUES", "b,a", Config(groups={"web": GroupConfig(queues=("b", "a"))})),
        ("PYWORKERS_GROUPS__WEB__QUEUES", "b:2,a", Config(groups={"web": GroupConfig({"b": 2, "a": 1})})),
        ("PYWORKERS_GROUPS__A__B__MODE", "async", Config(groups={"a__b": GroupConfig(mode="async")})),
    ],
)
def test_a_variable_is_read_as_the_type_of_its_field(name: str, text: str, expected: Config) -> None:
    assert load(None, env={name: text}) == expected


@pytest.mark.parametrize("queue", ["low-priority", "Low.Priority"])
def test_a_variable_finds_the_queue_of_the_file_whose_name_it_cannot_spell(toml: Toml, queue: str) -> None:
    config = toml(f'[queues."{queue}"]\ntimeout = 5', {"PYWORKERS_QUEUES__LOW_PRIORITY__CONCURRENCY": "2"})
    assert config.queues == {queue: QueueConfig(concurrency=2, timeout=5.0)}


@pytest.mark.parametrize(
    "name",
    ["PYWORKERS_FAILPOINTS", "PYWORKERS_LOG", "PYWORKERS_APP__X", "PYWORKERS_OTHER__KEY", "LOG__LEVEL"],
)
def test_variables_of_others_are_ignored(name: str) -> None:
    assert load(None, env={name: "x"}) == Config()


def test_overrides_reach_every_depth_and_none_means_not_given(toml: Toml) -> None:
    overrides = {"app": "a:b", "queues.a.b.concurrency": 3, "server.lease": None}
    config = toml("[server]\nlease = 12", **overrides)
    assert config.app == "a:b"
    assert config.queues == {"a.b": QueueConfig(concurrency=3)}
    assert config.server.lease == 12.0


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ('queues = ["critical", "default"]', ("critical", "default")),
        ("queues = {critical = 5, default = 2}", {"critical": 5, "default": 2}),
        ("[groups.web.queues]\ncritical = 5\ndefault = 2", {"critical": 5, "default": 2}),
    ],
)
def test_the_queues_of_a_group_are_a_list_or_a_table_with_weights(
    toml: Toml, text: str, queues: tuple[str, ...] | dict[str, int]
) -> None:
    assert toml(f"[groups.web]\nconcurrency = 20\n{text}").groups == {
        "web": GroupConfig(queues=queues, concurrency=20)
    }


def test_a_variable_overrules_one_key_of_a_group(toml: Toml) -> None:
    text = '[groups."web-1"]\nqueues = ["a", "b"]\nconcurrency = 20'
    config = toml(text, {"PYWORKERS_GROUPS__WEB_1__CONCURRENCY": "4"})
    assert config.groups == {"web-1": GroupConfig(queues=("a", "b"), concurrency=4)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queues = []", "3: groups.web.queues: a group has at least one queue"),
        ('queues = "a"', "3: groups.web.queues: must be an array or table, not a string"),
        ('queues = ["a", "b", "a"]', "3: groups.web.queues: a is named twice: for weights, give each queue"),
        ('queues = ["a b"]', "3: groups.web.queues: 'a b' cannot be a queue"),
        ('queues = ["a", 1]', "3: groups.web.queues: 1 cannot be a queue"),
        (
            "queues = {a = 0}",
            "3: groups.web.queues: the weight of a must be an integer from 1 to 1,000,000, not 0",
        ),
        (
            "queues = {a = true}",
            "3: groups.web.queues: the weight of a must be an integer from 1 to 1,000,000, not True",
        ),
        ('mode = "proces"', "3: groups.web.mode: must be one of process, async, thread, not 'proces'"),
        ("processes = 0", "3: groups.web.processes: must be at least 1, not 0"),
        ("queue = 1", "3: unknown key groups.web.queue\ndid you mean groups.web.queues?"),
        ('[groups."a b"]', "3: 'a b' cannot name a group: a queue name has 1 to 128 characters"),
    ],
)
def test_a_bad_group_is_named_with_its_line_and_the_rule(toml: Toml, text: str, message: str) -> None:
    assert f"workers.toml:{message}" in str(load_error(toml, f"\n[groups.web]\n{text}"))


def test_a_bad_group_of_a_variable_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, env={"PYWORKERS_GROUPS__WEB__QUEUES": "a:0"})
    error = caught.value
    assert error.location == "PYWORKERS_GROUPS__WEB__QUEUES"
    assert error.message == "groups.web.queues: the weight of a must be an integer from 1 to 1,000,000, not 0"


def test_an_override_leaves_the_other_keys_of_the_table(toml: Toml) -> None:
    config = toml("[queues.mail]\nconcurrency = 3\ntimeout = 5", **{"queues.mail.concurrency": 4})
    assert config.queues == {"mail": QueueConfig(concurrency=4, timeout=5.0)}


@pytest.mark.parametrize(
    ("env", "location", "message", "hint"),
    [
        (
            {"PYWORKERS_SERVER__LEASSE": "1"},
            "PYWORKERS_SERVER__LEASSE",
            "unknown key PYWORKERS_SERVER__LEASSE",
            "did you mean PYWORKERS_SERVER__LEASE?",
        ),
        (
            {"PYWORKERS_QUEUES__MAIL__TIME": "1"},
            "PYWORKERS_QUEUES__MAIL__TIME",
            "unknown key PYWORKERS_QUEUES__MAIL__TIME",
            "did you mean PYWORKERS_QUEUES__MAIL__TIMEOUT?",
        ),
        (
            {"PYWORKERS_CRON__0__NAME": "x"},
            "PYWORKERS_CRON__0__NAME",
            "cron entries are read from the file only",
            "",
        ),
        (
            {"PYWORKERS_SERVER__LEASE": "soon"},
            "PYWORKERS_SERVER__LEASE",
            "server.lease: must be a number, not 'soon'",
            "",
        ),
        (
            {"PYWORKERS_RETRY__MAX": "2.5"},
            "PYWORKERS_RETRY__MAX",
            "retry.max: must be an integer, not '2.5'",
            "",
        ),
        (
            {"PYWORKERS_RETRY__DRAIN_GORETRY": "maybe"},
            "PYWORKERS_RETRY__DRAIN_GORETRY",
            "retry.drain_goretry: must be a boolean, not 'maybe'",
            "",
        ),
        (
            {"PYWORKERS_SERVER__LEASE": "nan"},
            "PYWORKERS_SERVER__LEASE",
            "server.lease: must be finite, not nan",
            "",
        ),
        (
            {"REDIS_URL": "http://me:secret@host"},
            "REDIS_URL",
            "redis.url: 'http://me:***@host' is not a Redis URL: use redis://, rediss://, unix://, "
            "redis+sentinel://, rediss+sentinel://, redis+cluster://, rediss+cluster://, embedded:DIR",
            "",
        ),
    ],
)
def test_a_bad_variable_is_named(env: dict[str, str], location: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, env=env)
    error = caught.value
    assert (error.location, error.message, error.hint) == (location, message, hint)


def test_a_variable_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"redis\.password: .* surrogates not allowed"):
        load(None, env={"PYWORKERS_REDIS__PASSWORD": "\udc80"})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("server.leas", 1, "command line: unknown key server.leas\ndid you mean server.lease?"),
        ("server.lease", "1", "command line: server.lease: must be a number, not a string"),
        ("queues.mail.concurrency", 0, "command line: queues.mail.concurrency: must be at least 1, not 0"),
        ("cron.sweep.class", "Sweep", "command line: cron entries are read from the file only"),
    ],
)
def test_a_bad_override_is_named(key: str, value: int | str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, env={}, overrides={key: value})
    assert str(caught.value) == expected


def test_a_queue_that_only_a_variable_or_the_command_line_names_must_be_a_queue_name() -> None:
    with pytest.raises(ConfigError, match="'a b' cannot be a queue") as caught:
        load(None, env={}, overrides={"queues.a b.timeout": 1})
    assert caught.value.location == "command line"
    with pytest.raises(ConfigError, match="'' cannot be a queue") as caught:
        load(None, env={"PYWORKERS_QUEUES__TIMEOUT": "1"})
    assert caught.value.location == "PYWORKERS_QUEUES__TIMEOUT"


# Errors in the file


@pytest.mark.parametrize(
    ("text", "line", "message", "hint"),
    [
        ("\n[reddis]\nurl = 1", 2, "unknown key reddis", "did you mean redis?"),
        ("[server]\n\nleese = 1", 3, "unknown key server.leese", "did you mean server.lease?"),
        ("[log]\nlevel = 'info'\nx = 1", 3, "unknown key log.x", "known here: carry, format, level"),
        ("server.lease = 2\nserver.leese = 1", 2, "unknown key server.leese", "did you mean server.lease?"),
        ("\nlog = {levle = 'info'}", 2, "unknown key log.levle", "did you mean log.level?"),
        (
            "[queues.mail]\ntimout = 1",
            2,
            "unknown key queues.mail.timout",
            "did you mean queues.mail.timeout?",
        ),
        (CRON + "clas = 1", 6, "unknown key cron.sweep.clas", "did you mean cron.sweep.class?"),
        (
            CRON + "[[cron]]\nnames = 1",
            7,
            "unknown key cron.#2.names",
            "did you mean cron.#2.name?",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_its_neighbour(
    toml: Toml, text: str, line: int, message: str, hint: str
) -> None:
    error = load_error(toml, text)
    assert Path(error.location).name == f"workers.toml:{line}"
    assert (error.message, error.hint) == (message, hint)


def test_an_error_in_the_file_shows_path_line_key_and_suggestion(toml: Toml, tmp_path: Path) -> None:
    assert str(load_error(toml, "[server]\nleese = 1")) == (
        f"{tmp_path / 'workers.toml'}:2: unknown key server.leese\ndid you mean server.lease?"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = """\n[server]\nlease = 0\n"""', 1),
        ('app = """\\\n  a:b\\\n  """\n# lease = 0\n[server]\n\nlease = 0', 7),
        (CRON + 'args = [\n  ["x"],\n  ["server"]\n]\n[server]\nlease = 0 # lease = 1', 11),
        ('[server]\n"le\\u0061se" = 0', 2),
        ("[redis]\r\nurl = 'redis://h'\r\n[server]\r\nlease = 0", 4),
        ("[server]\nlease = [\n 1,\n 2]\n[log]", 2),
    ],
)
def test_the_line_is_where_the_key_stands_not_where_a_text_looks_like_it(
    toml: Toml, text: str, line: int
) -> None:
    assert Path(load_error(toml, text).location).name == f"workers.toml:{line}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app = 1", "app: must be a string, not an integer"),
        ("app.x = 1", "app: must be a string, not a table"),
        ("[server]\nlease = true", "server.lease: must be a number, not a boolean"),
        ("[server]\nlease = 2026-01-01", "server.lease: must be a number, not a date or time"),
        ("[retry]\nmax = true", "retry.max: must be an integer, not a boolean"),
        ("[retry]\nmax = 2.0", "retry.max: must be an integer, not a number"),
        ("[retry]\ndrain_goretry = 1", "retry.drain_goretry: must be a boolean, not an integer"),
        ("[redis]\npassword = 1234", "redis.password: must be a string, not an integer"),
        ("[queues.mail]\nconcurrency = '3'", "queues.mail.concurrency: must be an integer, not a string"),
        (CRON + "args = 'a'", "cron.sweep.args: must be an array, not a string"),
        ("redis = 'redis://h'", "redis: must be a table"),
        ("queues = ['mail']", "queues: must be a table"),
        ("queues.mail = 3", "queues.mail: must be a table"),
        ("[cron]\nname = 'sweep'", "cron: must be a table"),
        ("cron = ['sweep']", "cron.#1: must be a table"),
    ],
)
def test_a_wrong_type_is_refused(toml: Toml, text: str, message: str) -> None:
    assert load_error(toml, text).message == message


def test_a_value_in_the_place_of_a_table_comes_with_the_way_to_write_it(toml: Toml) -> None:
    assert load_error(toml, "queues.mail = 3").hint == (
        "write [queues.mail] on its own line, and its keys below"
    )
    assert load_error(toml, "[cron]").hint == "write [[cron]] on its own line, and its keys below"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nshutdown_timeout = -1", "server.shutdown_timeout: must be at least 0, not -1.0"),
        ("[server]\nlease = 0.5", "server.lease: must be at least 1, not 0.5"),
        (
            "[server]\nshutdown_timeout = 1e300",
            "server.shutdown_timeout: must be at most 1,000,000,000 seconds, not 1e+300",
        ),
        ("[server]\nlease = inf", "server.lease: must be finite, not inf"),
        ("[server]\nlease = nan", "server.lease: must be finite, not nan"),
        (f"[server]\nlease = 1{'0' * 400}", "server.lease: int too large to convert to float"),
        ("[server]\nmax_jobs_per_worker = -1", "server.max_jobs_per_worker: must be at least 0, not -1"),
        ("[server]\nmax_memory_mb = -1", "server.max_memory_mb: must be at least 0, not -1"),
        ("[queues.mail]\nconcurrency = 0", "queues.mail.concurrency: must be at least 1, not 0"),
        ("[queues.mail]\ntimeout = -1", "queues.mail.timeout: must be at least 0, not -1.0"),
        ("[retry]\nmax = -1", "retry.max: must be at least 0, not -1"),
        ("[scheduler]\npoll_interval = 0", "scheduler.poll_interval: must be at least 0.01, not 0.0"),
        ("[log]\nlevel = 'INFO'", "log.level: must be one of debug, info, warning, error, not 'INFO'"),
        ("[log]\nformat = 'xml'", "log.format: must be one of auto, console, json, not 'xml'"),
        (CRON + "misfire = 'never'", "cron.sweep.misfire: must be one of skip, once, all, not 'never'"),
        (CRON + "grace = -1", "cron.sweep.grace: must be at least 0, not -1.0"),
        (CRON + "grace = 1e9", "cron.sweep.grace: a grace of 1000000000.0 is not from 0 to 31622400 seconds"),
        ("app = 'tasks'", "app: must be module:attribute, e.g. tasks:worker, not 'tasks'"),
        ("app = ''", "app: must be module:attribute, e.g. tasks:worker, not ''"),
        (
            "app = 'a.py'",
            "app: must be module:attribute, e.g. tasks:worker, not 'a.py'; did you mean a:worker?",
        ),
        (
            "app = './a/b.py:jobs'",
            "app: must be module:attribute, e.g. tasks:worker, not './a/b.py:jobs'; did you mean a.b:jobs?",
        ),
        ("app = '../a.py'", "app: must be module:attribute, e.g. tasks:worker, not '../a.py'"),
    ],
)
def test_a_value_out_of_range_is_refused(toml: Toml, text: str, message: str) -> None:
    assert load_error(toml, text).message == message


def test_zero_is_within_the_range_where_it_means_never(toml: Toml) -> None:
    config = toml("[server]\nshutdown_timeout = 0\n[queues.mail]\ntimeout = 0\n[retry]\nmax = 0")
    assert (config.server.shutdown_timeout, config.queues["mail"].timeout, config.retry.max) == (0.0, 0.0, 0)


@pytest.mark.parametrize("name", ["", "a b", "a\\nb", "a|b", "queue:a", "a:inprogress"])
def test_a_table_for_what_cannot_be_a_queue_is_refused_with_the_rule(toml: Toml, name: str) -> None:
    error = load_error(toml, f'[server]\n[queues."{name}"]')
    assert "cannot be a queue: a queue name has 1 to 128 characters" in error.message
    assert Path(error.location).name == "workers.toml:2"


def test_a_syntax_error_is_reported_with_line_and_column(toml: Toml, tmp_path: Path) -> None:
    error = load_error(toml, "[server]\nlease = = 2")
    assert error.location == str(tmp_path / "workers.toml")
    assert error.message == "not valid TOML: Invalid value (at line 2, column 9)"


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.toml", env={})
    assert str(caught.value) == f"{tmp_path / 'none.toml'}: no such file"


def test_a_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, env={})


def test_a_file_in_another_encoding_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "workers.toml"
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(ConfigError, match="not valid TOML: 'utf-8' codec can't decode byte 0xe9"):
        load(path, env={})


# Rules of single fields


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:6379/0",
        "redis://me:p%2Fw@host",
        "rediss://[::1]:6380/1?ssl_cert_reqs=required",
        "unix:///run/redis.sock?db=1",
        "redis://host/",
        "redis://host//2/",
        "redis://host/shop?db=1",
        "rediss://host?db=1&db=x",
        "unix:///run/shop",
        "unix://me:a[b@/run/redis.sock",
        "redis+sentinel://:pw@one:26379,two:26379/mymaster/0",
        "rediss+sentinel://:pw@one:26379,two:26379/mymaster/0",
        "embedded:.pyworkers",
    ],
)
def test_a_url_of_a_known_scheme_is_taken_as_it_is(url: str) -> None:
    assert load(None, env={"REDIS_URL": url}).redis.url == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://host", "'http://host' is not a Redis URL: use redis://"),
        ("host:6379", "'host:6379' is not a Redis URL: use redis://"),
        ("redis:/host", "'redis:/host' is not a Redis URL: use redis://"),
        ("embedded:", "'embedded:' is not a Redis URL: use redis://"),
        ("", "'' is not a Redis URL: use redis://"),
        ("redis://me:se/cret@host", "'redis://me:***@host' has an invalid port"),
        ("redis://host:70000", "'redis://host:70000' has an invalid port"),
        ("rediss://host:0", "'rediss://host:0' has an invalid port"),
        (
            "redis://me:secret@host/shop",
            "'redis://me:***@host/shop' has an invalid database (a number, e.g. 0; for a name use",
        ),
        ("rediss://host/1/2", "'rediss://host/1/2' has an invalid database"),
        ("redis://host/-1", "'redis://host/-1' has an invalid database"),
        ("redis://host/0?db=x", "'redis://host/0?db=x' has an invalid database"),
        ("unix:///run/redis.sock?db=x", "'unix:///run/redis.sock?db=x' has an invalid database"),
        (
            "redis://me:5/cret@host/0",
            "'redis://me:***@host/0' has an invalid database (in a password, write /",
        ),
    ],
)
def test_another_url_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, env={"PYWORKERS_REDIS__URL": url})
    assert reason in str(caught.value)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("namespace", "accepted"),
    [
        ("", True),
        ("app:", True),
        ("{app}:", True),
        ("a:b:", True),
        ("app", False),
        ("my app:", False),
        ("app:\n", False),
    ],
)
def test_a_namespace_is_empty_or_ends_with_a_colon(namespace: str, accepted: bool) -> None:
    env = {"PYWORKERS_REDIS__NAMESPACE": namespace}
    if accepted:
        assert load(None, env=env).redis.namespace == namespace
    else:
        with pytest.raises(ConfigError, match=r"redis\.namespace: must be empty or end with a colon"):
            load(None, env=env)


@pytest.mark.parametrize(
    ("bind", "accepted"),
    [
        ("", True),
        ("127.0.0.1:1", True),
        ("localhost:65535", True),
        ("[::1]:7433", True),
        ("7433", False),
        (":7433", False),
        ("::1:7433", False),
        ("localhost", False),
        ("localhost:", False),
        ("localhost:0", False),
        ("localhost:65536", False),
        ("localhost:+80", False),
        ("local host:80", False),
        ("http://localhost:80", False),
    ],
)
def test_bind_is_empty_or_host_and_port(bind: str, accepted: bool) -> None:
    env = {"PYWORKERS_HTTP__BIND": bind}
    if accepted:
        assert load(None, env=env).http.bind == bind
    else:
        with pytest.raises(ConfigError, match=r"http\.bind: must be empty or host:port"):
            load(None, env=env)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            CRON.replace("*/5 *", "61 *"),
            4,
            "cron.sweep.schedule: '61 * * * *' is not a cron line: [61 * * * *] is not acceptable",
        ),
        (
            CRON.replace("*/5 * * * *", "0 0 30 2 *"),
            4,
            "cron.sweep.schedule: '0 0 30 2 *' is not a cron line: ",
        ),
        (
            CRON + "timezone = 'Europe/Pariss'",
            6,
            "cron.sweep.timezone: 'Europe/Pariss' is not a time zone; did you mean Europe/Paris?",
        ),
        (CRON + "timezone = 'Europe'", 6, "cron.sweep.timezone: 'Europe' is not a time zone"),
        (CRON + "timezone = '../UTC'", 6, "cron.sweep.timezone: '../UTC' is not a time zone"),
        (CRON + "args = [2026-01-01]", 6, "cron.sweep.args: must be JSON values: Object of type date"),
        (CRON + "args = [{a = nan}]", 6, "cron.sweep.args: Out of range float values"),
        (CRON + "queue = 'a b'", 6, "cron.sweep.queue: 'a b' cannot be a queue"),
        (CRON.replace("Sweep", ""), 5, "cron.sweep.class: must be printable and not empty, not ''"),
        (
            CRON.replace('"sweep"', '"a\\nb"'),
            3,
            "cron.#1.name: must be printable and not empty, not 'a\\nb'",
        ),
        (CRON + CRON, 8, "cron.sweep.name: another cron entry has this name"),
        (CRON + "[[cron]]\nname = 'a'\nschedule = '@daily'", 6, "cron.a.class: is missing"),
        ("\n[[cron]]", 2, "cron.#1.name: is missing"),
    ],
)
def test_a_bad_cron_entry_is_named_with_its_line_and_the_reason(
    toml: Toml, text: str, line: int, message: str
) -> None:
    error = load_error(toml, text)
    assert Path(error.location).name == f"workers.toml:{line}"
    assert error.message.startswith(message)


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "@daily", "0 9 * * mon-fri", "0 0 29 2 *", "every 30s"])
def test_a_schedule_that_can_fire_is_taken(toml: Toml, schedule: str) -> None:
    assert toml(CRON.replace("*/5 * * * *", schedule)).cron[0].schedule == schedule


# Secrets and showing


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://me@host:6379/0", "redis://me@host:6379/0"),
        ("redis://me:secret@host:6379/0", "redis://me:***@host:6379/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("redis://me:se@cr:et@host", "redis://me:***@host"),
        ("redis://me:se/cr?et#x@host/0", "redis://me:***@host/0"),
        ("redis://me@corp:secret@host", "redis://me@corp:***@host"),
        ("rediss://me:secret@[::1]:6380/1", "rediss://me:***@[::1]:6380/1"),
        ("redis+sentinel://me:secret@one:1,two:2/mymaster", "redis+sentinel://me:***@one:1,two:2/mymaster"),
        ("redis+sentinel://:secret@one:1,:secret@two:2/m", "redis+sentinel://:***@two:2/m"),
        ("redis+sentinel://one:1,two:2/m", "redis+sentinel://one:1,two:2/m"),
        ("redis://host/0?password=secret", "redis://host/0?password=***"),
        ("redis://host/0?db=1&password=se@cr#et&x=1", "redis://host/0?db=1&password=***&x=1"),
        ("redis+sentinel://h/m?Sentinel_Password=secret", "redis+sentinel://h/m?Sentinel_Password=***"),
        ("redis://me:secret@host?password=secret", "redis://me:***@host?password=***"),
        ("unix://me:secret@/run/redis.sock?db=1", "unix://me:***@/run/redis.sock?db=1"),
        ("unix:///run/redis@1.sock", "unix:///run/redis@1.sock"),
        ("embedded:/srv/a:b@c", "embedded:/srv/a:b@c"),
        ("me:secret@host:6379", "me:***@host:6379"),
        ("redis:/me:secret@host", "redis:***@host"),
        ("redis://me:sec\nret@host", "redis://me:***@host"),
        ("", ""),
    ],
)
def test_a_masked_url_keeps_all_but_the_secret(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert mask_url(shown) == shown


def test_no_repr_shows_a_secret() -> None:
    config = Config(redis=RedisConfig(url="redis://me:hunter2@host", password="hunter2", username="me"))
    assert "hunter2" not in repr(config)
    assert "username='me'" in repr(config)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("bind", "[::1]:7440", ""),
        ("bind", "unix:web.sock", ""),
        ("bind", "unix:", "unix: needs a path"),
        ("bind", "", "must be host:port or unix:PATH, not empty"),
        ("bind", "7440", "must be empty or host:port"),
        ("hosts", ["jobs.example.com", "[::1]", "10.0.0.1"], ""),
        ("hosts", ["jobs.example.com:80"], "must be names without port"),
        ("hosts", ["https://jobs.example.com"], "must be names without port"),
        ("hosts", [7], "must be names without port"),
        ("prefix", "/jobs", ""),
        ("prefix", "/my.own/jobs-1", ""),
        ("prefix", "", ""),
        ("prefix", "/jobs/", "must be empty or a path without a slash at its end"),
        ("prefix", "jobs", "must be empty or a path without a slash at its end"),
        ("prefix", "/jobs/..", "must be empty or a path without a slash at its end"),
        ("prefix", "//evil.example", "must be empty or a path without a slash at its end"),
        ("mask", ["password", "any name"], ""),
        ("mask", [""], "must be names of keys"),
    ],
)
def test_the_keys_of_the_dashboard(toml: Toml, key: str, value: object, error: str) -> None:
    text = f"[web]\n{key} = {value!r}\n"
    if error:
        with pytest.raises(ConfigError, match=rf"web\.{key}: {re.escape(error)}"):
            toml(text)
    else:
        found = getattr(toml(text).web, key)
        assert (list(found) if isinstance(value, list) else found) == value


PROVIDER = """[web.oidc]
issuer = "https://id.example.com"
client_id = "dashboard"
groups = {platform = "operate"}
"""


def test_the_secret_of_the_provider_is_in_a_variable(toml: Toml) -> None:
    oidc = toml(PROVIDER, {"PYWORKERS_WEB__OIDC__CLIENT_SECRET": "hunter2"}).web.oidc
    assert (oidc.client_secret, oidc.groups) == ("hunter2", {"platform": "operate"})
    assert "hunter2" not in repr(oidc)
    assert toml(PROVIDER).web.has_people
    assert not Config().web.has_people


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("issuer", "http://127.0.0.1:8080", ""),
        ("issuer", "http://localhost/realm", ""),
        ("issuer", "http://id.example.com", "must be https://host"),
        ("issuer", "id.example.com", "must be https://host"),
        ("issuer", "https://me:secret@id.example.com", "must be https://host"),
        ("issuer", "https://id.example.com/?a=b", "must be https://host"),
        ("redirect_url", "https://jobs.example.com/jobs/login/oidc/callback", ""),
        ("redirect_url", "https://jobs.example.com/", "must be https://host…/login/oidc/callback"),
        ("redirect_url", "http://jobs.example.com/login/oidc/callback", "must be https://host…"),
        ("scopes", ["openid", "groups"], ""),
        ("scopes", ["profile"], 'must be names without spaces, "openid" among them'),
        ("scopes", ["openid", "a b"], 'must be names without spaces, "openid" among them'),
        ("scopes", ["openid", 7], 'must be names without spaces, "openid" among them'),
        ("name_claim", "", "must be printable and not empty"),
        ("groups_claim", "a\nb", "must be printable and not empty"),
    ],
)
def test_the_keys_of_the_provider(toml: Toml, key: str, value: object, error: str) -> None:
    other = PROVIDER.replace('issuer = "https://id.example.com"\n', "") if key == "issuer" else PROVIDER
    text = f"{other}{key} = {toml_value(value)}\n"
    if error:
        with pytest.raises(ConfigError, match=rf"web\.oidc\.{key}: {re.escape(error)}"):
            toml(text)
    else:
        found = getattr(toml(text).web.oidc, key)
        assert (list(found) if isinstance(value, list) else found) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[web.oidc.groups]\nall = "admin"',
            "1: web.oidc.groups: 'all': the role is neither read nor enqueue nor operate",
        ),
        (
            '[web.oidc]\ngroups = {all = "operate@"}',
            "2: web.oidc.groups: 'all': a role has 1 to 100 names of queues",
        ),
        (
            '[web.oidc.groups]\nall = "enqueue"',
            "1: web.oidc.groups: 'all': the role enqueue is for programs: write",
        ),
        (
            "[web.oidc.groups]\nall = 7",
            "1: web.oidc.groups: the rights of 'all' must be a string, e.g. \"operate\"",
        ),
        ('[web.oidc]\ngroups = "all"', "2: web.oidc.groups: must be a table, not a string"),
        (
            '[web]\noidc = "https://id.example.com"',
            "2: web.oidc: must be a table\nwrite [web.oidc] on its own line",
        ),
        ('[web.oidc]\nclient = "x"', "2: unknown key web.oidc.client\ndid you mean web.oidc.client_id?"),
        (
            '[web.oidc]\nclient_id = "x"',
            "2: web.oidc.issuer: is missing\nset it to the URL of the provider, or",
        ),
        (
            '[web.oidc]\nissuer = "https://x.example"',
            "2: web.oidc.client_id: is missing\nset it to the id that",
        ),
        (
            '[web.oidc]\nissuer = "https://x.example"\nclient_id = "x"',
            "2: web.oidc.groups: is missing\nwrite [web.oidc.groups]",
        ),
    ],
)
def test_an_error_of_the_provider_names_the_line_and_the_fix(toml: Toml, text: str, message: str) -> None:
    assert f"workers.toml:{message}" in str(load_error(toml, text))


def test_the_groups_are_read_from_the_file_only(toml: Toml) -> None:
    error = load_error(toml, "", PYWORKERS_WEB__OIDC__GROUPS="all:read")
    assert str(error).startswith("PYWORKERS_WEB__OIDC__GROUPS: web.oidc.groups: is read from the file only")


EVERY_KEY = Config(
    app="tasks:worker",
    redis=RedisConfig(
        url="rediss://me:se%22cret@host/0?password=x",
        namespace="{app}:",
        username='a"b',
        password="\\ \t\n\x7f é 🎉",
        ca_file="ca.pem",
        cert_file="cert.pem",
        key_file="key.pem",
    ),
    other_redis={
        "old-1": RedisConfig(
            url="redis://old/1",
            namespace="old:",
            username="u",
            password="p",
            ca_file="c",
            cert_file="d",
            key_file="e",
        )
    },
    server=ServerConfig(
        shutdown_timeout=0.5,
        lease=1e9,
        idle_timeout=5.0,
        max_jobs_per_worker=7,
        max_memory_mb=9,
        keep=(5, 60),
        keep_args=False,
        sidekiq6=True,
    ),
    queues={
        "mail": QueueConfig(
            3,
            2,
            "thread",
            1.5,
            "5/30s",
            7,
            ordered=False,
            skip_dead=False,
            keep=(6, 61),
            keep_args=True,
            redis="old-1",
        ),
        "a.b": QueueConfig(timeout=0.0),
        "é": QueueConfig(),
    },
    groups={
        "web": GroupConfig(
            queues=("critical", "low"), concurrency=50, processes=4, mode="async", redis="old-1"
        ),
        "a.b": GroupConfig(queues={"x": 5, "y.z": 1}),
        "é": GroupConfig(),
    },
    retry=RetryConfig(max=0, backtrace=7, drain_goretry=True),
    scheduler=SchedulerConfig(poll_interval=0.25),
    encryption=EncryptionConfig(keys="/etc/pyworkers/keys"),
    log=LogConfig(level="debug", format="json"),
    http=HttpConfig(bind="[::1]:7433", hosts=("jobs.internal",), stats=False),
    web=WebConfig(
        bind="unix:/run/web.sock",
        auth="users",
        hosts=("jobs.example.com",),
        prefix="/jobs",
        mask=("pin",),
        oidc=OidcConfig(
            issuer="https://id.example.com/realm",
            client_id="dashboard",
            client_secret="s",
            name="Our company",
            scopes=("openid", "roles"),
            name_claim="email",
            groups_claim="realm.roles",
            redirect_url="https://jobs.example.com/jobs/login/oidc/callback",
            groups={"platform": "operate", "a b": "operate@mail\\:*,x"},
        ),
    ),
    cron=(
        CronConfig(
            name="sweep it",
            schedule="0 9 * * mon-fri",
            queue="mail",
            job_class="Sweep::It",
            args=(1, -2.5, "a'b", False, [], [[1]], {}, {"a b": {"c": [True, "d"]}}),
            timezone="Europe/Paris",
            misfire="skip",
            grace=1.0,
        ),
        CronConfig(name="two", every="2h", job_class="two"),
    ),
    alarms=AlarmsConfig(
        interval=5.0,
        secret="k",
        smtp="smtps://mail.example.com",
        sender="a@b.example",
        private=("10.0.0.0/8",),
    ),
    alarm=(
        AlarmConfig(
            name="all",
            when="limit",
            match="pay*",
            over=2.0,
            lasts=60.0,
            webhook="https://ops.example.com/a?b=c",
            slack="https://hooks.example.com/services/T",
            mail="ops@example.com",
        ),
    ),
)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("", "2: cron.a.schedule: is missing"),
        ('schedule = "@daily"\nevery = "5m"', "2: cron.a.every: excludes schedule"),
        ('every = "5 parsecs"', "4: cron.a.every: 'every 5 parsecs' is not a cron line"),
        ('every = "0s"', "4: cron.a.every: 'every 0s' is not a cron line"),
        ('schedule = "0 25 * * *"', "4: cron.a.schedule: '0 25 * * *' is not a cron line"),
    ],
)
def test_a_cron_entry_has_either_a_schedule_or_a_period(toml: Toml, keys: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        toml(f'\n[[cron]]\nname = "a"\n{keys}\nclass = "A"\n')
    assert f"workers.toml:{message}" in str(caught.value)


def test_the_unmasked_rendering_loads_as_the_same_configuration(toml: Toml) -> None:
    assert toml(render(EVERY_KEY, mask=False)) == EVERY_KEY
    assert toml(render(Config(), mask=False)) == Config()


def test_the_round_trip_covers_every_key() -> None:
    values = tomllib.loads(render(EVERY_KEY, mask=False))
    values["redis"]["*"] = values["redis"].pop("old-1")
    values["queues"] = {"*": values["queues"]["mail"]}
    values["groups"] = {"*": values["groups"]["web"]}
    values["cron"] = {"*": values["cron"][1] | values["cron"][0]}
    values["alarm"] = {"*": values["alarm"][0]}
    flat_values = flat(values)
    missing = [
        option.key for option in describe() if flat_values.get(option.key, option.default) == option.default
    ]
    assert not missing, "give it a value in EVERY_KEY that is not its default"


def test_the_rendering_masks_password_and_url_and_nothing_else() -> None:
    shown, plain = (render(EVERY_KEY, mask=mask).splitlines() for mask in (True, False))
    changed = [line for line, unmasked in zip(shown, plain, strict=True) if line != unmasked]
    assert changed == [
        'url = "rediss://me:***@host/0?password=***"',
        *['password = "***"'] * 2,
        'client_secret = "***"',
        'secret = "***"',
        'webhook = "https://ops.example.com/***"',
        'slack = "https://hooks.example.com/***"',
    ]


def test_the_rendering_is_masked_unless_asked_otherwise() -> None:
    assert render(EVERY_KEY) == render(EVERY_KEY, mask=True)


def test_an_empty_password_is_shown_as_empty() -> None:
    assert tomllib.loads(render(Config()))["redis"]["password"] == ""


def test_an_absent_application_and_an_unset_override_are_left_out() -> None:
    shown = tomllib.loads(render(Config(queues={"mail": QueueConfig(timeout=1.0)})))
    assert "app" not in shown
    assert shown["queues"] == {"mail": {"timeout": 1.0}}


def test_where_a_configuration_came_from_does_not_make_it_another() -> None:
    assert replace(Config(), path=Path("workers.toml")) == Config()


# The table and the sample


def test_every_field_of_every_dataclass_is_described() -> None:
    described = {(*option.path[:-1], option.attribute) for option in describe()}
    expected: set[tuple[str, ...]] = {("app",)}
    for cls, group in {
        RedisConfig: ("redis",),
        type("Other", (RedisConfig,), {}): ("redis", "*"),
        ServerConfig: ("server",),
        QueueConfig: ("queues", "*"),
        GroupConfig: ("groups", "*"),
        RetryConfig: ("retry",),
        SchedulerConfig: ("scheduler",),
        EncryptionConfig: ("encryption",),
        LogConfig: ("log",),
        HttpConfig: ("http",),
        WebConfig: ("web",),
        OidcConfig: ("web", "oidc"),
        CronConfig: ("cron", "*"),
        AlarmsConfig: ("alarms",),
        AlarmConfig: ("alarm", "*"),
    }.items():
        expected |= {(*group, name) for name in get_type_hints(cls)}
    expected.remove(("web", "oidc"))
    assert described == expected
    assert {path[0] for path in expected} == get_type_hints(Config).keys() - {"path", "other_redis"}


@pytest.mark.parametrize(
    ("key", "type_name", "default", "required"),
    [
        ("app", "string", None, False),
        ("redis.url", "string", "redis://127.0.0.1:6379/0", False),
        ("redis.*.url", "string", None, True),
        ("server.lease", "number", 30.0, False),
        ("server.max_memory_mb", "integer", 0, False),
        ("server.sidekiq6", "boolean", False, False),
        ("retry.drain_goretry", "boolean", False, False),
        ("queues.*.concurrency", "integer", None, False),
        ("queues.*.timeout", "number", None, False),
        ("groups.*.queues", "array or table", None, False),
        ("cron.*.class", "string", None, True),
        ("cron.*.args", "array", (), False),
    ],
)
def test_a_description_has_key_type_and_default(
    key: str, type_name: str, default: bool | float | int | str | tuple[str, ...] | None, required: bool
) -> None:
    option = next(option for option in describe() if option.key == key)
    assert (option.type, option.default, option.required) == (type_name, default, required)


def test_every_default_is_accepted_as_a_value(toml: Toml) -> None:
    """Defaults are not checked when they apply, so one out of its own range would go unnoticed."""
    assert toml(render(load(None, env={}))) == Config()
    assert toml(render(Config(cron=toml(CRON).cron))).cron == toml(CRON).cron


def flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Dotted keys and values of the configuration's tables; tables in arrays and of groups are values."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict) and prefix + key != "web.oidc.groups":
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def switched_on(text: str) -> str:
    """The text of a sample with every key."""
    return re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE)


def keys_of(text: str) -> dict[str, object]:
    """The keys and values of a sample, with its further Redis, queue, group and cron entry as ``*``."""
    values = tomllib.loads(switched_on(text))
    (queue,) = values["queues"].values()
    (group,) = values["groups"].values()
    (entry,) = values["cron"]
    (alarm,) = values["alarm"]
    values["redis"]["*"] = values["redis"].pop("archive")
    return flat(
        values | {"queues": {"*": queue}, "groups": {"*": group}, "cron": {"*": entry}, "alarm": {"*": alarm}}
    )


def test_the_sample_loads_and_differs_from_the_defaults_in_app_url_and_one_queue() -> None:
    assert load(SAMPLE, env={}) == Config(
        app="contrib.examples.python.tasks:worker",
        redis=RedisConfig(url="embedded:.pyworkers"),
        queues={"default": QueueConfig(concurrency=2)},
    )


def test_the_sample_with_everything_switched_on_loads(toml: Toml) -> None:
    text = switched_on(SAMPLE.read_text(encoding="utf-8"))
    config = toml(text.replace('every = "30s"\n', ""))  # it is instead of the schedule
    queue = QueueConfig(
        2, "auto", "process", 30.0, "10/s", 3,
        ordered=True, skip_dead=True, keep=(1000, 86400), keep_args=False, redis="archive",
    )  # fmt: skip
    assert config.other_redis == {"archive": RedisConfig(url="redis://10.0.0.2/0")}
    assert config.queues == {"default": queue}
    assert config.groups == {
        "web": GroupConfig(
            ("critical", "low"), concurrency=20, processes="auto", mode="thread", redis="archive"
        )
    }
    assert config.cron == (CronConfig(name="sweep", schedule="*/5 * * * *", job_class="sweep"),)


@pytest.mark.parametrize(
    "text", [SAMPLE.read_text(encoding="utf-8"), sample("workers.toml", {})], ids=["ours", "new"]
)
def test_a_sample_has_exactly_the_keys_of_the_code_in_the_same_order(text: str) -> None:
    keys = [option.key for option in describe()]
    assert list(keys_of(text)) == keys, "put it into conf/workers.toml at this place"


def test_the_sample_states_the_defaults_of_the_code() -> None:
    examples = {
        "app",
        "redis.url",
        "queues.*.concurrency",
        "queues.*.processes",
        "queues.*.mode",
        "queues.*.timeout",
        "queues.*.rate",
        "queues.*.max_running",
        "queues.*.ordered",
        "queues.*.skip_dead",
        "queues.*.keep",
        "queues.*.keep_args",
        "queues.*.redis",
        "groups.*.redis",
        "groups.*.queues",
        "groups.*.concurrency",
        "groups.*.processes",
        "groups.*.mode",
        *(f"web.oidc.{key}" for key in ("issuer", "client_id", "client_secret", "groups")),
        "cron.*.schedule",
        "cron.*.every",
        *(f"alarm.*.{key}" for key in ("match", "over", "webhook", "slack", "mail")),
    }
    examples |= {option.key for option in describe() if option.required}
    stated = {
        key: value
        for key, value in keys_of(SAMPLE.read_text(encoding="utf-8")).items()
        if key not in examples
    }
    defaults = {option.key: option.default for option in describe() if option.key not in examples}
    lists = {
        "cron.*.args": [],
        "log.carry": [],
        "server.keep": [],
        "web.hosts": [],
        "http.hosts": [],
        "alarms.private": [],
        "web.mask": list(WebConfig().mask),
        "web.thresholds": [],
        "web.oidc.scopes": ["openid", "profile", "email"],
    }
    assert stated == defaults | lists
    assert '# Default: "redis://127.0.0.1:6379/0".' in SAMPLE.read_text(encoding="utf-8")


def test_the_sample_says_of_every_key_what_the_code_says() -> None:
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()
    comment: list[str] = []
    explained: list[tuple[str, str]] = []
    for line in lines:
        comment = [*comment, line] if line.startswith("# ") else comment
        if (match := re.match(r"#?(\w+) = ", line)) is not None:
            explained.append((match[1], comment[0]))
        if not line.startswith("# "):
            comment = []
    assert explained == [(option.path[-1], f"# {option.doc}") for option in describe()]


# The file that ``pyworkers init`` writes


def test_a_new_configuration_loads_with_the_defaults_but_for_the_values_that_it_is_given(toml: Toml) -> None:
    text = sample("workers.toml", {"app": "tasks:worker", "redis.url": "embedded:.pyworkers"})
    assert toml(text) == Config(app="tasks:worker", redis=RedisConfig(url="embedded:.pyworkers"))


def test_a_new_configuration_with_everything_switched_on_loads(toml: Toml) -> None:
    text = switched_on(sample("workers.toml", {}))
    config = toml(text.replace('every = "30s"\n', ""))  # it is instead of the schedule
    assert config.queues["default"].concurrency == 10
    assert config.groups["web"].queues == ("critical", "low")
    assert config.cron[0].job_class == "greet"
