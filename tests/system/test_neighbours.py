"""What one idle server costs Redis with others, by counts: it must not grow with them and their queues."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pyworkers.protocol import flow
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import wait_for

APP = 'worker.process("q")(print)'
LEASE_S = 1.0
# A server renews its lease, and looks at those of the others, six times in a lease.
WINDOW_S = 3.0
# Of the looks of one minute with a lease of 30 s.
LOOKS_PER_MIN = 12
QUEUES = [f"queue-{number:04}" for number in range(1000)]
# hostname:pid:nonce, as long as they are in a cluster of containers.
PEER = "orders-worker-7d9c5b6f4{:04}:1:abcdef012345"


@dataclass(frozen=True)
class Cost:
    """Bytes in both directions, and commands inside scripts and out of them, for each look."""

    bytes: float
    commands: float


def cost(server: ServerProcess) -> Cost:
    """What the server costs within a window."""
    before = counted(server)
    time.sleep(WINDOW_S)
    sent, commands, looks = (now - then for now, then in zip(counted(server), before, strict=True))
    return Cost(sent / looks, commands / looks)


def counted(server: ServerProcess) -> tuple[int, int, int]:
    """Bytes, commands and looks until now."""
    stats: dict[str, Any] = server.redis.info("stats")
    calls = {name: row["calls"] for name, row in server.redis.info("commandstats").items()}
    sent = stats["total_net_input_bytes"] + stats["total_net_output_bytes"]
    return sent, sum(calls.values()) - calls["cmdstat_info"], calls.get("cmdstat_pexpire", 0)


def calls(server: ServerProcess, command: str) -> int:
    """How often Redis has executed a command."""
    row: dict[str, int] = server.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return row["calls"]


def commands(server: ServerProcess) -> int:
    """The commands of a window."""
    before = counted(server)[1]
    time.sleep(WINDOW_S)
    return counted(server)[1] - before


def has_read_all(server: ServerProcess) -> bool:
    """True if no large reply is under way: bytes count once they are sent, which a busy server delays."""
    before = counted(server)[0]
    # The interval of a rate, not a hope: the caller repeats it until the rate is low.
    time.sleep(0.2)
    return counted(server)[0] - before < 3 * 500 * 130


def add_peers(server: ServerProcess, numbers: range) -> None:
    """Servers with many queues, by the keys of real ones; they live as long as the test."""
    keys, info = server.keys, {"hostname": "h", "pid": 1, "queues": QUEUES, "flow": flow.VERSION}
    with server.redis.pipeline(transaction=False) as pipe:
        for identity in map(PEER.format, numbers):
            fields: dict[Any, Any] = {
                "info": json.dumps(info),
                "look": 0,
                "beat": time.time() + 3600,
                "busy": 0,
            }
            pipe.hset(keys.owners, identity, json.dumps(QUEUES))
            pipe.set(keys.lease(identity), identity)
            pipe.sadd(keys.processes, identity)
            pipe.hset(keys.process(identity), mapping=fields)
            pipe.set(keys.busy(identity), "0 5")
        pipe.execute()


@pytest.fixture
def own(tmp_path: Path, valkey_binary: str) -> Iterator[OwnRedis]:
    """A Redis that nothing else uses."""
    with OwnRedis(valkey_binary, tmp_path / "redis", "--save", "") as server:
        yield server.start()


def test_the_cost_of_an_idle_server_does_not_grow_with_the_others(tmp_path: Path, own: OwnRedis) -> None:
    """480 more cost a server without the turn nothing; one with it 130 bytes each, and a few commands."""
    turn = Keys().turn(Keys().owners)
    with own.client() as client:
        client.set(turn, "another")
    with serving(tmp_path, own.url, "", APP, PYWORKERS_SERVER__LEASE=str(LEASE_S)) as server:
        add_peers(server, range(20))
        few = cost(server)
        add_peers(server, range(20, 500))
        many = cost(server)
        # A window has a heartbeat more or less: below 5 bytes for each of the others.
        assert many.commands - few.commands <= 2
        assert many.bytes - few.bytes <= 480 * 5
        server.redis.delete(turn)
        wait_for(lambda: calls(server, "hmget") >= 500, message="the server has asked for the others")
        wait_for(lambda: has_read_all(server), message="it has read the replies")
        watching = cost(server)
        assert watching.commands - many.commands <= 60 / LOOKS_PER_MIN
        assert watching.bytes - many.bytes <= 500 * 130
        assert server.stop() == 0


def test_what_redis_announces_is_not_read_at_each_look(tmp_path: Path, own: OwnRedis) -> None:
    """The registrations and the lists of running jobs: six looks fit into a lease, and one of them reads."""
    with serving(tmp_path, own.url, "", APP, PYWORKERS_SERVER__LEASE=str(LEASE_S)) as server:

        def reads() -> int:
            return calls(server, "hkeys") + calls(server, "exists")

        def reads_seldom() -> bool:
            before, looks = reads(), counted(server)[2]
            time.sleep(WINDOW_S)
            return reads() - before < counted(server)[2] - looks

        wait_for(reads_seldom, message="fewer reads than looks")
        assert server.stop() == 0


GROUP = """
queues = [f"q{number}" for number in range(200)]
worker.group("all", queues=queues, concurrency=1)
for queue in queues:
    worker.process(queue)(print)
"""
ORDERED = """
for number in range(20):
    worker.process(f"q{number}", ordered=True)(print)
"""


@pytest.mark.parametrize(("app", "most"), [(GROUP, 20), (ORDERED, 15)], ids=["group", "ordered"])
def test_idle_queues_cost_no_connections_and_no_commands(
    tmp_path: Path, own: OwnRedis, app: str, most: int
) -> None:
    """Many queues, which wait on one connection; a job still comes at once."""
    with serving(tmp_path, own.url, "", app) as server:
        # The first seconds of a server are another thing.
        wait_for(lambda: commands(server) <= 5 * WINDOW_S, message="the queues are idle")
        wait_for(lambda: server.redis.info("clients")["connected_clients"] <= most, message="few connections")
        server.push("q7", raw_job("a", queue="q7"))
        server.wait_for_event("job.done")
        assert server.stop() == 0
