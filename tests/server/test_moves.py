"""The name in redis.url moves to another address, while the Redis at the former one still takes writes."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.server.health import ServerHealth
from pyworkers.server.moves import Moves, name_in
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async
from tests.helpers.redises import OwnRedis
from tests.helpers.support import wait_for

NAME = "redis.test"
HERE, THERE = "127.0.0.1", "127.0.0.2"


class Names:
    """What the name resolves to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address = HERE
        resolve = socket.getaddrinfo

        def patched(host: Any, *args: Any, **options: Any) -> Any:
            return resolve(self.address if host == NAME else host, *args, **options)

        monkeypatch.setattr(socket, "getaddrinfo", patched)


@pytest.fixture
def pair(tmp_path: Path, valkey_binary: str) -> Iterator[tuple[OwnRedis, redis.Redis]]:
    """Two servers of one port, each with its own address of the loopback interface."""
    with OwnRedis(valkey_binary, tmp_path / "here").start() as here:
        there = OwnRedis(valkey_binary, tmp_path / "there", "--bind", THERE, "--save", "")
        there.port = here.port
        with there.start(), redis.Redis(host=THERE, port=here.port) as client:
            wait_for(client.ping, message="it answers")
            yield here, client


async def test_the_name_moves(pair: tuple[OwnRedis, redis.Redis], monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = pair
    names = Names(monkeypatch)
    config = RedisConfig(url=f"redis://{NAME}:{here.port}/0")
    store = Store(connect_async(config), Keys(""))
    health = ServerHealth(time.monotonic, random.Random()).of(Moves.name)
    left: list[str] = []

    async def leave() -> None:
        left.append(names.address)

    moves = Moves(store, config, NAME, health, leave)
    try:
        await moves.look()
        await moves.look()
        names.address = THERE
        with capture_logs() as lines:
            await moves.look()
            await moves.look()
        assert [line["event"] for line in lines] == ["redis.other_data"]
        names.address = "127.0.0.3"
        with capture_logs() as lines:
            await moves.look()
        assert [line["event"] for line in lines] == ["redis.not_compared"]
        names.address = HERE
        await moves.look()
        there.replicaof(HERE, here.port)
        wait_for(lambda: there.info("replication")["master_link_status"] == "up", message="replicating")
        # The first replica of a primary has changed the id of its data.
        await moves.look()
        names.address = THERE
        await moves.look()
        assert left == [], "a replica takes no writes"
        there.replicaof("NO", "ONE")
        await moves.look()
        await moves.look()
        assert left == [THERE]
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://db.example:7/0", "db.example"),
        ("rediss://u:p@db.example", "db.example"),
        ("redis://127.0.0.1:7/0", None),
        ("redis://[::1]:7/0", None),
        ("redis:///0", None),
        ("unix:///run/redis.sock", None),
        ("redis+sentinel://db.example/main", None),
    ],
)
def test_the_name_in_a_url(url: str, name: str | None) -> None:
    assert name_in(url) == name
