"""Where producers find Redis: arguments, then the environment, then the file, then the default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers.app import Worker
from pyworkers.asyncclient import AsyncClient
from pyworkers.client import Client
from pyworkers.config import own_redis
from pyworkers.config.fields import RedisConfig
from pyworkers.config.loading import load
from pyworkers.config.producers import config_for
from pyworkers.errors import ConfigError
from pyworkers.store.transport.connections import connect

pytestmark = pytest.mark.usefixtures("no_redis_in_environment")

DEFAULT = "redis://127.0.0.1:6379/0"
FILE = '[redis]\nurl = "redis://file/1"\nnamespace = "file:"\nusername = "me"\npassword = "p"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "workers.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def in_a_job() -> Iterator[None]:
    own_redis.hand_over({"url": "redis://server/5", "namespace": "server:", "password": "s"})
    yield
    own_redis.hand_over(None)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"REDIS_URL": "redis://env/2"},
        {"PYWORKERS_REDIS__URL": "redis://ours/3", "REDIS_URL": "redis://env/2"},
        {"PYWORKERS_REDIS__NAMESPACE": "env:"},
        {"PYWORKERS_REDIS__NAMESPACE": ""},
        {"PYWORKERS_REDIS__PASSWORD": "", "PYWORKERS_REDIS__USERNAME": "you"},
    ],
)
def test_the_sources_are_in_the_order_of_the_server(file: Path, env: dict[str, str]) -> None:
    expected = load(file, env=env).redis
    assert config_for(None, None, env, file) == expected
    assert config_for(None, None, env | {"PYWORKERS_CONFIG": str(file)}) == expected


def test_arguments_win_and_a_given_url_is_complete(file: Path) -> None:
    env = {"PYWORKERS_REDIS__URL": "bad", "PYWORKERS_REDIS__PASSWORD": "p"}
    assert config_for("redis://x", None, env, file) == RedisConfig("redis://x", "file:")
    assert config_for("redis://x", None, env | {"PYWORKERS_REDIS__NAMESPACE": "e:"}, file).namespace == "e:"
    assert config_for(None, "mine:", {}, file) == RedisConfig("redis://file/1", "mine:", "me", "p")
    assert (
        config_for(None, None, {"PYWORKERS_REDIS__URL": "", "REDIS_URL": "redis://a/1"}).url == "redis://a/1"
    )
    # Nothing is asked of a file that could say nothing.
    assert config_for("redis://x", "", {"PYWORKERS_CONFIG": "missing"}) == RedisConfig("redis://x")


def test_a_file_that_is_named_goes_before_that_of_the_environment(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[redis]\nnamespace = "other:"\n')
    env = {"PYWORKERS_CONFIG": str(other)}
    assert config_for(None, None, env, file).namespace == "file:"
    assert config_for(None, None, env) == RedisConfig(DEFAULT, "other:")


def test_clients_read_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", "env:")
    for kind in (Client, AsyncClient):
        for path in ("workers.toml", file):
            client: Client | AsyncClient = kind.from_config(path)
            assert client.config == RedisConfig("redis://file/1", "env:", "me", "p")


def test_a_worker_reads_the_file_at_its_first_use(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    worker, missing = Worker(config="workers.toml"), Worker(config="missing.toml")
    monkeypatch.chdir("/")
    assert worker.client.config.namespace == "file:"
    assert Client.of(worker).config.url == "redis://file/1"
    with pytest.raises(ConfigError, match=rf"{file.parent}/missing\.toml: no such file"):
        missing.enqueue("q", "C")
    file.write_text('[redis]\nulr = "x"\n')
    with pytest.raises(
        ConfigError, match=r"workers\.toml:2: unknown key redis\.ulr\ndid you mean redis\.url"
    ):
        Worker(config=file).enqueue("q", "C")


def test_a_worker_without_a_file_follows_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    monkeypatch.setenv("PYWORKERS_CONFIG", str(file))
    assert worker.client.config == RedisConfig("redis://file/1", "file:", "me", "p")


@pytest.mark.usefixtures("in_a_job")
def test_in_a_job_the_redis_of_the_server_comes_before_the_surroundings(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://env/2")
    monkeypatch.setenv("PYWORKERS_CONFIG", str(file))
    own = RedisConfig("redis://server/5", "server:", password="s")
    assert Client().config == AsyncClient().config == Worker(config=file).client.config == own
    # What the code names is meant.
    assert Client("redis://x").config == RedisConfig("redis://x", "server:")
    assert Client(namespace="").config.namespace == ""
    assert Client.from_config(file).config == RedisConfig("redis://env/2", "file:", "me", "p")


CLUSTER = "redis+cluster://a:1,b:2"


@pytest.mark.parametrize(
    ("namespace", "line"),
    [("", '"{app}:"'), ("shop:", '"{shop}:"'), ("{}:", '"{app}:"'), ("x:{:", '"{x:}:"')],
)
def test_a_cluster_needs_a_hash_tag(tmp_path: Path, namespace: str, line: str) -> None:
    """Of each kind: a client by arguments and by the environment, a server by its file."""
    file = tmp_path / "workers.toml"
    file.write_text(f'[redis]\nurl = "{CLUSTER}"\nnamespace = "{namespace}"\n')
    found = f"a cluster needs a namespace with a hash tag, .*: write namespace = {re.escape(line)}"
    for make in (
        lambda: Client(CLUSTER, namespace=namespace),
        lambda: config_for(None, None, {"REDIS_URL": CLUSTER, "PYWORKERS_REDIS__NAMESPACE": namespace}),
        lambda: connect(RedisConfig(CLUSTER, namespace)),
    ):
        with pytest.raises(ConfigError, match=found):
            make()
    with pytest.raises(ConfigError, match=found) as caught:
        load(file, env={})
    assert caught.value.location == f"{file}:3"


def test_the_environment_may_give_a_cluster_its_hash_tag(tmp_path: Path) -> None:
    file = tmp_path / "workers.toml"
    file.write_text(f'[redis]\nurl = "{CLUSTER}"\n')
    found = config_for(None, None, {"PYWORKERS_REDIS__NAMESPACE": "a{b}:"}, file)
    assert found == RedisConfig(CLUSTER, "a{b}:")
