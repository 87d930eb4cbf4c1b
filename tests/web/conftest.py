"""Fixtures of the dashboard's tests: one that is served for real, and visitors, one a browser."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import redis

from contrib.pictures import shop
from pyworkers import Client
from pyworkers.api.target import Admin, admin_of
from pyworkers.protocol.flow.finished import FinishedFacts
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.conftest import Servers, missing
from tests.helpers.redises import OwnRedis
from tests.integrations.web import patient, served
from tests.web.chromium import Chromium, Open, lacking, running_chromium
from tests.web.programs import As, Program
from tests.web.test_finished import keep
from tests.web.test_users import line
from tests.web.visitor import Visitor


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that need the browser."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@pytest.fixture(autouse=True)
def _patient(request: pytest.FixtureRequest) -> Iterator[None]:
    """Dashboards wait for Redis, except in tests of outages, which have their own."""
    with nullcontext() if "own_redis" in request.fixturenames else patient():
        yield


@contextmanager
def _visited(url: str, namespace: str) -> Iterator[Visitor]:
    """A visitor of the dashboard of a namespace, which uvicorn serves in a thread."""
    with served(app(url, namespace=namespace, token="")) as root:
        yield Visitor(f"{root}/")


@pytest.fixture
def dashboard(one_redis_url: str, namespace: str) -> Iterator[Visitor]:
    """A visitor of the dashboard of this test's namespace."""
    with _visited(one_redis_url, namespace) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def read_shop(one_redis_url: str, servers: Servers) -> Iterator[Visitor]:
    """A visitor of a small shop that all tests of a module share, which only read it."""
    keys = Keys(f"t{uuid.uuid4().hex[:12]}:")
    try:
        with redis.Redis.from_url(one_redis_url) as db:
            _fill_small(db, keys, one_redis_url)
        with _visited(one_redis_url, keys.namespace) as visitor:
            yield visitor
    finally:
        servers.delete_keys(keys.namespace)


def fill_each(keys: Keys, *urls: str) -> None:
    """Write the shop and a finished job into each Redis."""
    for url in urls:
        with redis.Redis.from_url(url) as db:
            shop.fill(db, keys, url)
            keep(db, keys, FinishedFacts("done", time.time()), {"jid": "finished-job"})


@pytest.fixture(scope="module")
def _both_shops(one_redis_url: str, second_redis_url: str, servers: Servers) -> Iterator[Keys]:
    keys = Keys(f"t{uuid.uuid4().hex[:12]}:")
    try:
        fill_each(keys, one_redis_url, second_redis_url)
        yield keys
    finally:
        servers.delete_keys(keys.namespace)


@pytest.fixture
def both_shops(_both_shops: Keys, one_redis_url: str, second_redis_url: str) -> Keys:
    """The keys of the shop in two Redis servers, which all tests of a module share and only read."""
    # After a minute without one, its servers would be silent.
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            for server in shop.SERVERS:
                db.hset(_both_shops.process(server), "beat", int(time.time()))
    return _both_shops


@pytest.fixture
def db(one_redis_url: str) -> Iterator[redis.Redis]:
    """A connection to the server of the dashboard."""
    with redis.Redis.from_url(one_redis_url) as connection:
        yield connection


@pytest.fixture
def client(one_redis_url: str, namespace: str) -> Iterator[Client]:
    """A producer."""
    with Client(one_redis_url, namespace=namespace) as client:
        yield client


@pytest.fixture
def own_redis(tmp_path: Path, one_binary: str) -> Iterator[OwnRedis]:
    with OwnRedis(one_binary, tmp_path / "redis") as server:
        yield server.start()


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if reason := lacking():
        missing(reason)
    with running_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def chromium(_browser: Chromium, dashboard: Visitor) -> Iterator[Chromium]:
    """The browser of this session, with an empty page and without cookies.

    It leaves the dashboard before that ends, which would wait for the event stream, and the next test.
    """
    _browser.reset()
    yield _browser
    _browser.open("about:blank")


@pytest.fixture
def admin(db: redis.Redis, keys: Keys, one_redis_url: str) -> Admin:
    """The shop's Redis."""
    shop.fill(db, keys, one_redis_url)
    return admin_of(one_redis_url, keys.namespace)


def _fill_small(db: redis.Redis, keys: Keys, url: str) -> None:
    """The shop with two jobs in each list: such a page has all that one of fifty has, for less CPU."""
    shop.fill(db, keys, url)
    for queue in shop.QUEUES:
        db.ltrim(keys.queue(queue), -2, -1)
    for jobs in (keys.schedule, keys.retry):
        db.zremrangebyrank(jobs, 2, -1)
    # The last one is the job of the picture.
    db.zremrangebyrank(keys.dead, 0, -3)
    for server in shop.SERVERS:
        db.hdel(keys.work(server), *list(db.hkeys(keys.work(server)))[1:])


@pytest.fixture
def small_shop(db: redis.Redis, keys: Keys, one_redis_url: str) -> None:
    """The small shop in this test's namespace."""
    _fill_small(db, keys, one_redis_url)


@pytest.fixture
def show(chromium: Chromium, dashboard: Visitor, admin: Admin) -> Open:
    """Opens a page of the shop in the browser."""

    def opened(path: str) -> Chromium:
        chromium.open(dashboard.root + path)
        return chromium

    return opened


@pytest.fixture
def root(one_redis_url: str, namespace: str, tmp_path: Path) -> Iterator[str]:
    """A dashboard with a user of each role."""
    users = tmp_path / "users"
    users.write_text("\n".join(line(f"{role}r", role) for role in ("read", "enqueue", "operate")))
    with served(app(one_redis_url, namespace=namespace, auth=users)) as address:
        yield address


@pytest.fixture
def program(root: str) -> As:
    """Programs, by the role of their user."""
    return lambda role: Program(root, Authorization=f"Bearer {role}r:secret")
