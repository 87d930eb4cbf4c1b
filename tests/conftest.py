"""Fixtures of all tests: real servers, and a namespace for each test.

``PYWORKERS_TEST_SERVERS`` ("valkey,redis" if unset) says which servers to test with; "redis62" is the oldest
Redis, which ``make test-oldest`` installs. One that is not installed skips its tests at home, and fails them
where ``CI`` is true.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import inspect
import os
import re
import shutil
import sys
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NoReturn, cast

import pytest
import redis
import uvloop
from hypothesis import settings

from pyworkers import embedded, logs
from pyworkers.errors import EmbeddedError
from pyworkers.protocol.keys import Keys
from tests.helpers import warm
from tests.helpers.coroutines import run_in_loop
from tests.helpers.launcher import as_from_a_terminal
from tests.helpers.parallel import pytest_addoption as pytest_addoption
from tests.helpers.parallel import pytest_runtestloop as pytest_runtestloop
from tests.helpers.support import free_port, running_server

# An example takes longer on a busy machine. Under CI, Hypothesis has a profile, which this one keeps.
settings.register_profile("unhurried", settings.default, deadline=None)
settings.load_profile("unhurried")

warm.read_version_once()
as_from_a_terminal()


def _valkey() -> str | None:
    try:
        return str(embedded.server_binary())
    except EmbeddedError:
        return None


def _redis() -> str | None:
    return shutil.which("redis-server")


def _redis62() -> str | None:
    return shutil.which("redis-server", path=Path(sys.prefix) / "redis-6.2" / "bin")


# Name and where its binary is. `one_redis_url` and the tests that depend on the server have the first.
_BINARIES: dict[str, Callable[[], str | None]] = {"valkey": _valkey, "redis": _redis, "redis62": _redis62}
_USUAL = "valkey,redis"
# As `BY_SERVER` of the Makefile, and test_changes.py, which needs a right that Redis 6.2 does not know.
_BY_SERVER = re.compile(
    r"/tests/(store/|faults/test_redis|server/test_(changes|fetcher|ordered_fetcher|recovery)"
    r"|system/test_(acl|outages|fates|cancel))"
)


def _wanted() -> list[str]:
    names = os.environ.get("PYWORKERS_TEST_SERVERS", _USUAL).replace(" ", "").split(",")
    if not set(names) <= set(_BINARIES):
        raise pytest.UsageError(f"PYWORKERS_TEST_SERVERS={','.join(names)}: known are {','.join(_BINARIES)}")
    return sorted(set(names), key=list(_BINARIES).index)


class Servers:
    """The servers of this session, each started when a test first asks for it."""

    def __init__(self, stack: contextlib.ExitStack, new_directory: Callable[[str], Path]) -> None:
        self._stack = stack
        self._new_directory = new_directory
        self._urls: dict[str, str] = {}
        self._connections: list[redis.Redis] = []

    def url(self, name: str, place: str = "") -> str:
        """The URL of a server; with a place, of another one of the same program."""
        key = name + place
        if key not in self._urls:
            server = running_server(_binary(name), self._new_directory(key), free_port())
            url = self._urls[key] = self._stack.enter_context(server)
            self._connections.append(self._stack.enter_context(redis.Redis.from_url(url)))
        return self._urls[key]

    def delete_keys(self, prefix: str) -> None:
        """Delete the keys with this prefix from all of them."""
        for connection in self._connections:
            if keys := list(connection.scan_iter(f"{prefix}*", count=1000)):
                connection.unlink(*keys)


def missing(reason: str) -> NoReturn:
    """Skip the test for want of a program; fail it where ``CI`` is true."""
    refuse = pytest.fail if _under_ci() else pytest.skip
    refuse(reason)


def _under_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1")


@functools.cache
def _installed(name: str) -> bool:
    return _BINARIES[name]() is not None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: nearly all that is made then remains."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave the modules and the tests out of each collection of garbage: a whole one took 0.3 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _leave_nothing_open() -> Iterator[None]:
    """Let what a module left open fail that module: garbage is else collected in the test of another one."""
    yield
    gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was skipped and why, and the seed of a run that failed: ``-q`` hides the header with it."""
    if reasons := Counter(map(_reason, terminalreporter.stats.get("skipped", []))):
        counted = [f"{count} for “{reason}”" for reason, count in reasons.most_common()]
        terminalreporter.write_line(f"Skipped {reasons.total()} tests: {', '.join(counted)}")
    seed = config.getoption("randomly_seed", None)
    if seed is not None and (terminalreporter.stats.keys() & {"failed", "error"}):
        terminalreporter.write_line(f"The same order again: ARGS='--randomly-seed={seed}'")


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped; from pytest-xdist the place is a list."""
    place = report.longrepr
    text = place[2] if isinstance(place, tuple | list) else str(place)
    return text.removeprefix("Skipped: ").splitlines()[0]


def _binary(name: str) -> str:
    binary = _BINARIES[name]()
    return binary or missing(f"the server {name} is not installed")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in a new event loop, of ``new_loop`` if it has that fixture."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    new_loop = cast("Callable[[], asyncio.AbstractEventLoop] | None", pyfuncitem.funcargs.get("new_loop"))
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run_in_loop(pyfuncitem.obj, arguments))
    return True


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes each kind of event loop in turn."""
    factory: Callable[[], asyncio.AbstractEventLoop] = request.param
    return factory


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """The running servers by name; tests rather ask for ``redis_url`` or ``one_redis_url``."""
    with contextlib.ExitStack() as stack:
        yield Servers(stack, tmp_path_factory.mktemp)


@pytest.fixture(scope="session")
def valkey_binary() -> str:
    """The path of the Valkey that the extra ``embedded`` brings."""
    return _binary("valkey")


@pytest.fixture(scope="session")
def one_binary() -> str:
    """The path of the server that ``one_redis_url`` is a running one of."""
    return _binary(_wanted()[0])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what depends on the server with the first, so that each server has its own run (.ci/run).

    All else runs with the one that its name decides.
    """
    if "redis_url" not in metafunc.fixturenames:
        return
    names = _wanted()
    if not _under_ci():
        names = [name for name in names if _installed(name)] or names
    depends = _BY_SERVER.search(metafunc.definition.path.as_posix())
    which = 0 if depends else zlib.crc32(metafunc.function.__name__.encode()) % len(names)
    metafunc.parametrize("redis_url", [names[which]], indirect=True)


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, servers: Servers) -> str:
    """The URL of a server (see ``pytest_generate_tests``)."""
    return servers.url(request.param)


@pytest.fixture(scope="session")
def one_redis_url(servers: Servers) -> str:
    """The URL of one server, Valkey if there is a choice: for slow tests."""
    return servers.url(_wanted()[0])


@pytest.fixture(scope="session")
def second_redis_url(servers: Servers) -> str:
    """The URL of another server than those of the other fixtures."""
    return servers.url(_wanted()[0], "-second")


@pytest.fixture
def namespace(servers: Servers) -> Iterator[str]:
    """A prefix for the keys of this test alone; what is left under it goes away afterwards."""
    prefix = f"t{uuid.uuid4().hex[:12]}:"
    yield prefix
    servers.delete_keys(prefix)


@pytest.fixture
def keys(namespace: str) -> Keys:
    """The keys under ``namespace``."""
    return Keys(namespace)


@pytest.fixture
def db(redis_url: str) -> Iterator[redis.Redis]:
    """A connection to the server of ``redis_url``, with all rights."""
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _logs_as_at_first() -> Iterator[None]:
    """Logging is global; what a test configured must not decide what the next one sees."""
    yield
    logs.reset()
