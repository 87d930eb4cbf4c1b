"""A port with TLS where the URL has none, and the other way round: the error names the right scheme."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from pyworkers import AsyncClient, Client
from pyworkers.errors import RedisUnavailableError
from pyworkers.store.transport import connections
from tests.store.test_wire import a_tls_server

PLAIN = "does not speak TLS: use redis:// instead of rediss://, or the port of Redis' tls-port"
TLS = "speaks TLS: use rediss:// instead of redis://"


def enqueue(url: str, blocking: bool) -> None:
    if blocking:
        with Client(url) as client:
            client.enqueue("q", "Add")
        return

    async def push() -> None:
        async with AsyncClient(url) as client:
            await client.enqueue("q", "Add")

    asyncio.run(push())


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asyncio"])
def test_tls_to_a_plain_port_is_named_before_the_timeout(
    one_redis_url: str, blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the question to the port, this would take so long.
    for name in ("CONNECT_TIMEOUT_S", "SOCKET_TIMEOUT_S"):
        monkeypatch.setattr(connections, name, 300.0)
    began = time.monotonic()
    with pytest.raises(RedisUnavailableError, match=PLAIN) as caught:
        enqueue(one_redis_url.replace("redis://", "rediss://"), blocking)
    assert time.monotonic() - began < 150
    assert caught.value.code == "TLS"


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asyncio"])
def test_a_port_with_tls_is_named(one_redis_url: str, tmp_path: Path, blocking: bool) -> None:
    with a_tls_server(one_redis_url, tmp_path) as (config, _):
        url = config.url.partition("?")[0].replace("rediss://", "redis://")
        with pytest.raises(RedisUnavailableError, match=TLS) as caught:
            enqueue(url, blocking)
    assert caught.value.code == "TLS"


@pytest.mark.parametrize("blocking", [True, False], ids=["blocking", "asyncio"])
def test_a_port_that_says_nothing_is_given_up_within_the_time_for_a_connection(blocking: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}?socket_connect_timeout=1.5&socket_timeout=300"
        began = time.monotonic()
        with pytest.raises(RedisUnavailableError, match="Timeout connecting") as caught:
            enqueue(url, blocking)
    assert time.monotonic() - began < 100
    assert caught.value.code != "TLS"
