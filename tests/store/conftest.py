"""Fixtures of the tests of the store, and of what is built on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.embedded import spawn_bound
from pyworkers.store.calls import Operation, run
from pyworkers.store.transport.connections import connect
from tests.helpers.support import free_port, running_server, wait_for

Cli = Callable[..., Result]
Run = Callable[[Operation[Any]], Any]


@pytest.fixture
def cli(redis_url: str, namespace: str) -> Cli:
    """Run a command on this Redis; no terminal, as in a script."""

    def run(*words: str) -> Result:
        options = ["--url", redis_url, "--namespace", namespace]
        result = CliRunner().invoke(main, [*words, *options], prog_name="pyworkers")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def where(redis_url: str, namespace: str) -> RedisConfig:
    """The Redis of this test, for the API."""
    return RedisConfig(redis_url, namespace)


@pytest.fixture
def there(second_redis_url: str) -> Iterator[redis.Redis]:
    """A connection to the other Redis."""
    with redis.Redis.from_url(second_redis_url) as connection:
        yield connection


@pytest.fixture
def two_redis(redis_url: str, second_redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration of two Redis servers, also for programs that a test starts."""
    for name, url in (("", redis_url), ("ARCHIVE__", second_redis_url)):
        monkeypatch.setenv(f"PYWORKERS_REDIS__{name}URL", url)
        monkeypatch.setenv(f"PYWORKERS_REDIS__{name}NAMESPACE", namespace)


@pytest.fixture
def sentinel_url(tmp_path: Path, valkey_binary: str) -> Iterator[str]:
    """A server named "main", and the sentinel that knows it, behind one that does not answer."""
    port = free_port()
    with running_server(valkey_binary, tmp_path, free_port()) as url:
        config = tmp_path / "sentinel.conf"
        master = url.removeprefix("redis://").partition("/")[0].replace(":", " ")
        config.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main {master} 1\n")
        with (tmp_path / "sentinel.log").open("wb") as log:
            sentinel = spawn_bound([valkey_binary, str(config), "--sentinel"], output=log)
        try:
            wait_for(lambda: b"+monitor master main" in (tmp_path / "sentinel.log").read_bytes())
            yield f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/main/0"
        finally:
            sentinel.kill()
            sentinel.wait()


@pytest.fixture
def run_work(redis_url: str) -> Run:
    """Runs calls and steps over a new client each time; test_calls.py does it in an event loop as well."""

    def blocking(operation: Operation[Any]) -> Any:
        with connect(RedisConfig(redis_url)) as client:
            return run(client, operation)

    return blocking
