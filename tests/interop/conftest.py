"""Fixtures of the peers: built once per session, all on a Redis that each test finds empty.

Sidekiq knows no namespaces, so a prefix cannot keep these tests apart from others. A peer that is not
installed skips its tests at home, and fails them where ``CI`` is true.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.conftest import missing
from tests.helpers.golang import built_once
from tests.helpers.support import PATIENCE_S, free_port, running_server, wait_for
from tests.interop.browser import Browser
from tests.interop.programs import GO, RUBY, GoProducer, Ruby, go_environment, working


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    binary = shutil.which("redis-server") or missing("redis-server is not installed")
    with running_server(binary, tmp_path_factory.mktemp("interop-redis"), free_port()) as url:
        yield url


@pytest.fixture
def url(_server: str) -> str:
    """The URL of a Redis that holds nothing."""
    with redis.Redis.from_url(_server) as connection:
        connection.flushall()
    return _server


@pytest.fixture
def db(url: str) -> Iterator[redis.Redis]:
    """A connection to it."""
    with redis.Redis.from_url(url) as connection:
        yield connection


@pytest.fixture(scope="session")
def sidekiq_installed() -> None:
    """Skips or fails without Sidekiq."""
    if shutil.which("sidekiq") is None:
        missing("sidekiq is not installed: apt-get install ruby-sidekiq ruby-rack ruby-webrick")


@pytest.fixture(scope="session")
def _console(
    _server: str, sidekiq_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ruby]:
    log = tmp_path_factory.mktemp("ruby") / "log"
    console = Ruby(["ruby", RUBY / "console.rb"], {"REDIS_URL": _server}, log)
    yield console
    console.close()


@pytest.fixture
def ruby(_console: Ruby, url: str) -> Ruby:
    """Sidekiq's client and API on the empty Redis."""
    return _console


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs ``goworkers`` and ``goworkers2``, built from their modules.

    Built for the first time, they take a minute of two cores.
    """
    if shutil.which("go") is None:
        missing("go is not installed")
    try:
        return built_once(tmp_path_factory, GO, "./goworkers", "./goworkers2")
    except subprocess.CalledProcessError as error:
        missing(f"the Go peers cannot be built: {error.stderr}")


@pytest.fixture(params=["goworkers", "goworkers2"])
def go(request: pytest.FixtureRequest, go_programs: Path) -> Path:
    """Each Go program in turn."""
    return go_programs / str(request.param)


@pytest.fixture
def go_producer(go: Path, url: str, tmp_path: Path) -> Iterator[GoProducer]:
    """The producer of each Go library in turn, on the empty Redis."""
    producer = GoProducer([go, "produce"], go_environment(url, "producer"), tmp_path / "producer.log")
    yield producer
    producer.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session waits until the Go programs are built."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(6 * PATIENCE_S))


@pytest.fixture(scope="session")
def _web(_server: str, sidekiq_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    root = f"http://127.0.0.1:{port}/"
    command: list[str | Path] = ["ruby", RUBY / "web.rb", str(port)]
    with working(command, tmp_path_factory.mktemp("web"), REDIS_URL=_server) as web:
        wait_for(lambda: _answers(root) or web.process.poll() is not None, PATIENCE_S, "the Web UI answers")
        if web.process.poll() is not None:
            missing(f"the Web UI does not start: {web.log_text()}")
        yield root


def _answers(root: str) -> bool:
    try:
        Browser(root).get("stats")
    except OSError:
        return False
    return True


@pytest.fixture
def browser(_web: str, url: str) -> Browser:
    """A new browser at Sidekiq's Web UI on the empty Redis."""
    return Browser(_web)
