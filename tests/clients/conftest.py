"""Fixtures of the clients in other languages: a Redis, and a server that runs contrib/clients/application.py.

A language that is not installed skips its tests at home, and fails them where ``CI`` is true.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.helpers.golang import LINKED, built_once
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import ROOT, free_port, running_server

CLIENTS = ROOT / "contrib" / "clients"


@pytest.fixture(scope="session")
def redis_of_clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis."""
    binary = shutil.which("redis-server") or missing("redis-server is not installed")
    with running_server(binary, tmp_path_factory.mktemp("clients-redis"), free_port()) as url:
        yield url


@pytest.fixture(scope="session")
def client_environment(
    redis_of_clients: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, str]]:
    """The environment of a client's tests: a Redis with a server, and the keys of encrypted arguments."""
    folder = tmp_path_factory.mktemp("clients")
    keys = folder / "keys"
    keys.write_bytes(base64.b64encode(os.urandom(32)) + b"\n")
    (folder / "application.py").write_text((CLIENTS / "application.py").read_text())
    about = {"REDIS_URL": redis_of_clients, "PYWORKERS_ENCRYPTION__KEYS": str(keys), "GOFLAGS": LINKED}
    server = ServerProcess(folder, redis_of_clients, "", **about)
    try:
        server.start(app="application:worker")
        yield {**os.environ, **about}
    finally:
        server.kill()


@pytest.fixture(scope="session")
def node() -> Path:
    """The folder of the Node client, with the packages that its tests need."""
    if shutil.which("node") is None:
        missing("node is not installed: apt-get install nodejs npm")
    folder = CLIENTS / "node"
    if not (folder / "node_modules").exists():
        missing(f"the packages of the Node client are not installed: npm ci --prefix {folder}")
    return folder


@pytest.fixture(scope="session")
def ruby() -> Path:
    """The folder of the Ruby client."""
    if shutil.which("sidekiq") is None:
        missing("sidekiq is not installed: apt-get install ruby-sidekiq")
    return CLIENTS / "ruby"


@pytest.fixture(scope="session")
def go() -> Path:
    """The folder of the Go client."""
    if shutil.which("go") is None:
        missing("go is not installed: apt-get install golang-go")
    return CLIENTS / "go"


@pytest.fixture(scope="session")
def go_programs(go: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the programs of contrib/clients/go/internal."""
    return built_once(tmp_path_factory, go, "./internal/holder", "./internal/racer", "./internal/worker")
