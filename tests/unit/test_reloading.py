"""The configuration of a reload: what applies at once, what only a restart changes, what an error leaves."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_type_hints

import pytest

import pyworkers.server
from pyworkers.config.fields import (
    Config,
    HttpConfig,
    LogConfig,
    QueueConfig,
    RedisConfig,
    RetryConfig,
    ServerConfig,
)
from pyworkers.config.options import describe
from pyworkers.config.reloading import Configurations
from pyworkers.errors import ConfigError

SERVER = Path(pyworkers.server.__file__).parent
CONFIGS = ("config", "current")
"""What a whole configuration is called, also with an underscore."""
SECTIONS = {kind.__name__: name for name, kind in get_type_hints(Config).items() if isinstance(kind, type)}
STARTED = Config(app="a:b", redis=RedisConfig(url="embedded:x"), server=ServerConfig(lease=30))
RUNNING = Config(app="a:b", redis=RedisConfig(url="unix:///x"), server=ServerConfig(lease=30))


def configurations(read: Callable[[], Config]) -> Configurations:
    return Configurations(STARTED, RUNNING, read)


def test_a_reload_keeps_what_only_a_restart_changes_and_names_it() -> None:
    new = Config(
        app="c:d",
        redis=RedisConfig(url="embedded:y"),
        server=ServerConfig(lease=20, max_memory_mb=7),
        retry=RetryConfig(max=3, drain_goretry=True),
        log=LogConfig(level="debug"),
        http=HttpConfig(bind="127.0.0.1:1"),
    )
    found = configurations(lambda: new)
    assert found.read_again() == ["redis.url", "server.lease", "retry.drain_goretry", "http.bind"]
    assert found.load() == Config(
        app="c:d",
        redis=RedisConfig(url="unix:///x"),
        server=ServerConfig(lease=30, max_memory_mb=7),
        retry=RetryConfig(max=3),
        log=LogConfig(level="debug"),
    )


def test_the_same_sources_change_nothing() -> None:
    found = configurations(lambda: STARTED)
    assert found.read_again() == []
    assert found.load() == RUNNING


def test_what_was_read_counts_for_one_load_and_stays_once_it_is_used() -> None:
    new = Config(app="c:d")
    found = configurations(lambda: new)
    found.read_again()
    assert found.load().app == found.loading.app == "c:d"
    # That load failed; or the fork server is lost and replaced.
    assert found.load().app == found.loading.app == "a:b"
    found.read_again()
    found.use(found.load())
    assert found.current.app == found.load().app == "c:d"


@pytest.mark.parametrize(
    ("url", "namespace", "is_offered"),
    [
        ("redis://h/0", "", False),
        ("redis://other/0", "", True),
        ("redis+sentinel://h/main", "", True),
        ("redis://other/0", "app:", False),
        ("embedded:x", "", False),
    ],
)
def test_another_redis_may_be_used_if_its_data_are_the_same(
    url: str, namespace: str, is_offered: bool
) -> None:
    running = Config(app="a:b", redis=RedisConfig(url="redis://h/0"))
    new = Config(app="a:b", redis=RedisConfig(url=url, namespace=namespace))
    found = Configurations(running, running, lambda: new)
    found.read_again()
    assert found.offered == ({"default": new.redis} if is_offered else {})
    if is_offered:
        assert found.move_to("default", new.redis, ["redis.url", "redis.old.url"]) == ["redis.old.url"]
        assert found.load().redis == found.current.redis == new.redis
        assert (found.read_again(), found.offered) == ([], {})


def test_a_redis_that_is_added_removed_or_changed_needs_a_restart() -> None:
    old, other = RedisConfig("redis://old"), RedisConfig("redis://other", "o:")
    running = Config(app="a:b", other_redis={"old": old, "other": other})
    new = Config(app="a:b", other_redis={"other": RedisConfig("redis://another", "o:"), "new": old})
    found = Configurations(running, running, lambda: new)
    assert sorted(found.read_again()) == ["redis.new", "redis.old", "redis.other.url"]
    assert found.offered == {"other": new.other_redis["other"]}
    assert found.load().other_redis == running.other_redis
    new = replace(new, queues={"q": QueueConfig(redis="new")})
    with pytest.raises(ConfigError, match="the queue 'q' is on the Redis 'new', which was added"):
        found.read_again()


@pytest.mark.parametrize("app", [None, "bad"])
def test_an_error_changes_nothing(app: str | None) -> None:
    def read() -> Config:
        if app is not None:
            raise ConfigError("unknown key")
        return Config(app=None)

    found = configurations(read)
    with pytest.raises(ConfigError, match="no application" if app is None else "unknown key"):
        found.read_again()
    assert found.load() == RUNNING


def _reads(keys: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Each function of the master that reads a key, or the whole section of one (``log.*``)."""
    for file in SERVER.rglob("*.py"):
        for part in ast.walk(ast.parse(file.read_text())):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                for key in _read_by(part, keys):
                    yield key, f"{file.relative_to(SERVER)}:{part.name}"


def _read_by(part: ast.FunctionDef | ast.AsyncFunctionDef, keys: frozenset[str]) -> Iterator[str]:
    """By the name of the section, whatever it is read from, or by the type of an argument."""
    sections = {key.partition(".")[0] for key in keys}
    kinds = {one.arg: ast.unparse(one.annotation) for one in _arguments(part) if one.annotation}
    read = [node for node in ast.walk(part) if isinstance(node, ast.Attribute)]
    owners = {id(node.value) for node in read}
    for node in read:
        owner = ast.unparse(node.value).rpartition(".")[2].lstrip("_")
        kind = kinds.get(owner, "")
        if (key := f"{SECTIONS.get(kind, owner)}.{node.attr}") in keys:
            yield key
        elif (owner in CONFIGS or kind == "Config") and node.attr in sections and id(node) not in owners:
            yield f"{node.attr}.*"


def _arguments(part: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [node for node in ast.walk(part.args) if isinstance(node, ast.arg)]


def test_only_functions_of_a_load_read_what_a_reload_changes() -> None:
    """A key that is read elsewhere, so only at the start of the server, is declared with ``restart=True``."""
    one_table = (option for option in describe() if len(option.path) == 2 and "*" not in option.path)
    assert set(_reads(frozenset(option.key for option in one_table if not option.restart))) == {
        ("encryption.keys", "__init__.py:_load"),
        ("log.*", "__init__.py:serve"),
        ("log.*", "shard.py:__init__"),
        ("log.*", "shard.py:configure"),
        ("log.carry", "__init__.py:_load"),
        ("log.format", "__init__.py:_load"),
        ("log.format", "incarnation.py:set_up_logs"),
        ("log.level", "__init__.py:_load"),
        ("log.level", "incarnation.py:set_up_logs"),
        ("retry.backtrace", "__init__.py:_load"),
        ("retry.max", "__init__.py:_load"),
        ("retry.max", "shard.py:_rules"),
        ("server.idle_timeout", "plan.py:_sized"),
        ("server.keep", "__init__.py:_kept"),
        ("server.keep_args", "__init__.py:_kept"),
        ("server.max_jobs_per_worker", "__init__.py:_load"),
        ("server.max_memory_mb", "__init__.py:_load"),
        ("web.mask", "http/pages.py:stats"),
    }
