"""TLS with real servers: a Redis and a sentinel that speak nothing else, and demand a certificate."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers import AsyncClient, Client
from pyworkers.api import Stats
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from tests.conftest import missing
from tests.helpers.certificates import Certificates
from tests.helpers.redises import OwnRedis, Sentinel
from tests.helpers.server_process import WAITING_APP, ServerProcess, serving
from tests.helpers.support import stretched, wait_for

# Of all parts, after the end of an outage.
SOON_S = 15
# A part for each kind of connection: of the pool, announced changes, the blocking move.
PARTS = {"heartbeat", "changes", "fetcher q"}


class Secure:
    """A primary and its sentinel; ``certificates`` are those of both, and of the clients."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("redis-server") or missing("redis-server is not installed")
        self.certificates = Certificates(folder / "certificates")
        self.redis = OwnRedis(binary, folder / "redis", certificates=self.certificates)
        self.sentinel = Sentinel(binary, folder / "sentinel", self.redis)
        self.url = f"rediss+sentinel://127.0.0.1:{self.sentinel.port}/mymaster/0"
        self.config = RedisConfig(self.url, **self.certificates.of_clients)

    def start(self) -> None:
        self.redis.start()
        self.sentinel.start()
        wait_for(self._is_known, message="the sentinel knows the primary")

    def _is_known(self) -> bool:
        with self.sentinel.client() as client:
            return bool(client.sentinel_master("mymaster")["flags"] == "master")

    def close(self) -> None:
        for server in (self.sentinel, self.redis):
            server.kill()


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    secure = Secure(tmp_path / "secure")
    try:
        secure.start()
        yield secure
    finally:
        secure.close()


def test_both_hops_are_encrypted_for_every_kind_of_client(
    tmp_path: Path, secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in secure.certificates.environment.items():
        monkeypatch.setenv(name, file)
    with Client.from_config(secure.config) as client:
        client.enqueue("q", "Any", [1])

    async def enqueue() -> None:
        async with AsyncClient.from_config(secure.config) as client:
            await client.enqueue("q", "Any", [2])

    asyncio.run(enqueue())
    assert Stats.fetch(secure.config).enqueued == 2
    monkeypatch.setenv("PYWORKERS_REDIS__URL", secure.url)
    assert "q " in CliRunner().invoke(main, ["queues"]).stdout
    shown = CliRunner().invoke(main, ["acl"]).stderr
    files = secure.certificates
    assert f"-p {secure.redis.port} --tls --cacert {files.ca} --cert {files.client}" in shown
    with serving(tmp_path, secure.url, "", WAITING_APP, direct_url="redis://unused") as server:
        server.wait_for_notes(2, "end")
        assert server.stop() == 0


def test_each_part_connects_with_the_files_of_now_and_keeps_the_last_good_ones(
    tmp_path: Path, secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in secure.certificates.environment.items():
        monkeypatch.setenv(name, file)
    with serving(tmp_path, secure.url, "", WAITING_APP, direct_url=secure.redis.url) as server:
        # Half of a renewal: the certificate of the client is there, and its key is not.
        Certificates(tmp_path / "next").client.replace(secure.certificates.client)
        kept = server.wait_for_event("certificates.kept")
        assert kept["error"].endswith("do not match")
        with an_outage(server, secure):
            pass
        with an_outage(server, secure):
            secure.certificates.renew()
        server.wait_for_event("certificates.renewed")
        with Client.from_config(secure.config) as client:
            client.enqueue("q", "Any", [1])
        server.wait_for_notes(1, "end")
        assert len(server.events("certificates.kept")) == 1


@contextlib.contextmanager
def an_outage(server: ServerProcess, secure: Secure) -> Iterator[None]:
    """The block runs once each kind of connection is lost; then both servers start, and all parts recover."""
    before = len(server.events("redis.down")), len(server.events("redis.up"))

    def parts(name: str, known: int) -> set[str]:
        return {event["part"] for event in server.events(name)[known:]}

    for own in (secure.sentinel, secure.redis):
        own.kill()
    wait_for(lambda: parts("redis.down", before[0]) >= PARTS, message="each kind is down")
    yield
    for own in (secure.redis, secure.sentinel):
        own.start()
    began = time.monotonic()
    wait_for(lambda: parts("redis.up", before[1]) >= parts("redis.down", before[0]), message="all are up")
    assert time.monotonic() - began < stretched(SOON_S)


def test_sentinels_that_cannot_be_used_are_named_with_the_fix(
    secure: Secure, one_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, file in secure.certificates.environment.items():
        monkeypatch.setenv(name, file)
    sentinel = f"127.0.0.1:{secure.sentinel.port}"
    plain = one_redis_url.removeprefix("redis://").partition("/")[0]
    cases = {
        f"redis+sentinel://{sentinel}/mymaster": "Redis cannot be reached, because of TLS: "
        f"{sentinel} speaks TLS: use rediss+sentinel:// instead of redis+sentinel://",
        f"rediss+sentinel://{plain}/mymaster": "Redis cannot be reached, because of TLS: "
        f"{plain} does not speak TLS: use redis+sentinel:// instead of rediss+sentinel://, "
        "or the port of Redis' tls-port",
        f"rediss+sentinel://{sentinel}/other": f"the sentinels name no primary: {sentinel}: "
        "no primary has the name 'other', only 'mymaster': correct the name in redis.url",
        f"redis+sentinel://{plain}/mymaster": f"the sentinels name no primary: {plain}: "
        "this is not a sentinel: name sentinels in redis.url, or use redis:// and rediss://",
    }
    for url, expected in cases.items():
        result = CliRunner().invoke(main, ["stats", "--url", url])
        assert (result.exit_code, result.stderr) == (4, f"Error: {expected}\n")
