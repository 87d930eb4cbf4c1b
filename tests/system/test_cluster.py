"""A Redis Cluster of six nodes: all keys are in the slot of a hash tag, whichever node has it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import hiredis
import pytest
import redis
from click.testing import CliRunner

from pyworkers import AsyncClient, Client, Worker
from pyworkers.api import BatchSet, LimitSet, LockSet, Queue
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role, line
from pyworkers.store.admin import Admin
from pyworkers.store.calls import arun, every, one
from pyworkers.store.calls import command as command_of
from pyworkers.store.jobs import InProgress
from pyworkers.store.store import Store
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import connect, connect_async, primary_of
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.primary import Primary, Watch
from pyworkers.store.transport.replies import integer
from pyworkers.store.transport.wire import AsyncWires
from tests.conftest import missing
from tests.helpers.acl import refused
from tests.helpers.certificates import Certificates
from tests.helpers.enqueuing import Producer
from tests.helpers.redises import Cluster, OwnRedis, command
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import PATIENCE_S, async_wait_for, by_load, free_port, stretched, wait_for

NAMESPACE = "{app}:"
CODE = """
limits = [worker.limit("slots", concurrency=1), worker.limit("turns", rate=20)]

@worker.job(queue="q", concurrency=3, limits=limits)
def limited(number):
    note("limited", number)

@worker.job(queue="q", retry_in=lambda *_: 0.1)
def member(number):
    note("member", number)
    if number == 0 and current_message().attempt == 0:
        raise ValueError("once")
    return number

@worker.job(queue="q")
def after(batch_id):
    note("after", batch_id)

@worker.job(queue="q")
def export():
    at = checkpoint(0)
    at.save(7)
    current_message().progress(1, 2)
    return at.value

@worker.process("ledger", ordered=True)
def book(message):
    note("book", *message.args, message.fence)

@worker.job(queue="pay")
def pay(number):
    note("pay", number)
"""
CONFIG = '[server]\nlease = 2\n[queues.pay]\nrate = "50/s"\nmax_running = 2\n'


LEDGER = """
@worker.process("q", concurrency=4)
def run(message):
    note("ran", message.jid, time.monotonic())
"""
HELD = """
@worker.process("q", concurrency=1)
def hold(message):
    meet("finish", message.jid)
"""
# From the election, or the end of the reshard, to the first call that returns, and to the first job.
SOON_S = 4.0
# What a primary that is killed had acknowledged, and not yet sent to its replica.
UNDER_WAY_S = 0.2


@pytest.fixture(scope="module")
def binary() -> str:
    return shutil.which("redis-server") or missing("redis-server is not installed")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, binary: str) -> Iterator[Cluster]:
    cluster = Cluster(binary, tmp_path_factory.mktemp("cluster"), NAMESPACE)
    try:
        yield cluster.start()
    finally:
        cluster.close()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    nodes.repair()
    return nodes


@pytest.fixture
def url(cluster: Cluster) -> str:
    return cluster.url


@pytest.fixture
def server(tmp_path: Path, cluster: Cluster) -> Iterator[ServerProcess]:
    (tmp_path / "workers.toml").write_text(CONFIG)
    options = ("--config", str(tmp_path / "workers.toml"))
    direct = cluster.primary.url
    with serving(tmp_path, cluster.url, NAMESPACE, CODE, *options, direct_url=direct) as running:
        yield running


def test_all_that_a_job_may_ask_for_works_in_one_slot(server: ServerProcess, url: str) -> None:
    worker = Worker(url, namespace=NAMESPACE)

    @worker.job(queue="q")
    def member(number: int) -> None: ...

    @worker.job(queue="q")
    def after(batch_id: str = "") -> None: ...

    with Client(url, namespace=NAMESPACE) as client:
        with worker.batch("members", on_success=after.call()) as batch:
            for number in range(5):
                member.enqueue(number)
        jid = client.enqueue("q", "later", unique_for=60, delay=3600)
        assert client.enqueue("q", "later", unique_for=60, delay=3600) == jid
        for number in range(4):
            client.enqueue("q", "limited", [number])
            client.enqueue("ledger", "book", [number])
            client.enqueue("pay", "pay", [number])
        assert client.result(client.enqueue("q", "export", track=60), PATIENCE_S) == 7
        assert [note[2] for note in server.wait_for_notes(1, "after")] == [batch.id]
        assert (batch.status().done, batch.status().pending) == (5, 0)
        for word in ("limited", "book", "pay"):
            assert sorted(note[2] for note in server.wait_for_notes(4, word)) == [0, 1, 2, 3]
        wait_for(lambda: server.settled("q", "ledger", "pay"))
        assert [lock.jid for lock in LockSet(url, namespace=NAMESPACE)] == [jid]
    assert [one.id for one in BatchSet(url, namespace=NAMESPACE)] == [batch.id]
    assert {limit.key for limit in LimitSet(url, namespace=NAMESPACE)} == {
        "slots", "turns", "queue/pay", "running/pay",
    }  # fmt: skip
    assert server.zset("dead") == []
    assert [event["event"] for event in server.events() if event["level"] == "error"] == []


def test_a_killed_server_is_recovered_in_one_slot(server: ServerProcess, url: str, tmp_path: Path) -> None:
    server.push("q", *({"class": "limited", "args": [n], "jid": f"j{n}"} for n in range(40)))
    server.wait_for_notes(1, "limited")
    server.kill()
    server.start()
    server.wait_for_notes(40, "limited")
    wait_for(lambda: server.settled("q", sets=["schedule"]))
    # The sweep frees what the killed server held.
    wait_for(lambda: {limit.used for limit in LimitSet(url, namespace=NAMESPACE) if not limit.per_s} == {0})


def fill(node: OwnRedis) -> None:
    """So many keys that a slot moves for seconds, with a large one among them."""
    with node.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(1500):
            pipe.set(f"{{app}}:filling:{number}", number)
        for _ in range(50):
            pipe.rpush("{app}:filling", *(f"{number:0100}" for number in range(2000)))
        pipe.execute()


def move(cluster: Cluster, way: str) -> None:
    """Let another node have the slot."""
    if way == "failover":
        cluster.fail_over()
    elif way == "crash":
        cluster.primary.kill()
        cluster.wait_for_election()
    else:
        target = cluster.other_primary()
        if way == "slow reshard":
            fill(cluster.primary)
        cluster.begin_reshard(target)
        cluster.migrate(target, 0.002)
        cluster.end_reshard(target)


@pytest.mark.parametrize("way", ["reshard", "failover"])
def test_each_kind_of_client_follows(cluster: Cluster, way: str) -> None:
    """With connections to the former node, which refuses them, and without any error."""
    config = RedisConfig(cluster.url, NAMESPACE)

    async def ask_and_move() -> None:
        store, link, length = (
            Store(connect_async(config), Keys(NAMESPACE)),
            Link(config),
            ("LLEN", "{app}:queue:q"),
        )
        async with AsyncClient(config.url, namespace=NAMESPACE) as client:
            for number in range(2):
                await asyncio.to_thread(blocking.enqueue, "q", "Any", [number])
                await client.enqueue("q", "Any", [number])
                size = 2 * number + 2
                assert await store.arun(one(*length, read=integer)) == size
                assert await link.execute_command(*length) == queue.size == size
                if not number:
                    move(cluster, way)
        await store.close()
        await link.aclose()

    queue = Queue("q", config.url, namespace=NAMESPACE)
    former = cluster.primary
    with Client(config.url, namespace=NAMESPACE) as blocking:
        asyncio.run(ask_and_move())
    assert cluster.primary is not former


def test_no_call_begins_on_a_connection_that_the_watch_is_about_to_close(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once another primary is known: the reply to a call on the former connection might be lost."""
    monkeypatch.setattr(Watch, "_look", lambda *_: None)
    config, ping = RedisConfig(cluster.url, NAMESPACE), PACK(("PING",))

    def leave(client: Any) -> None:
        """Know another primary."""
        watch = primary_of(client).watch  # type: ignore[union-attr]
        watch._known = watch.known._replace(address=("127.0.0.1", 1))  # type: ignore[union-attr]

    @contextlib.contextmanager
    def refusing() -> Iterator[None]:
        """The new primary takes no connection yet."""
        with monkeypatch.context() as patch:
            for name in ("find", "find_async"):
                patch.setattr(Primary, name, Mock(side_effect=redis.ConnectionError("not yet")))
            yield

    async def in_a_loop() -> None:
        client = connect_async(config)
        wires = AsyncWires(connect_async(config))
        async with client, contextlib.aclosing(wires):
            await client.execute_command("PING")
            [pooled] = client.connection_pool._available_connections
            writer = pooled._writer
            await wires.exchange(ping, 1)
            [wire] = wires._wires
            leave(client)
            await client.execute_command("PING")
            assert pooled._writer is not writer
            leave(client)
            with refusing(), pytest.raises(redis.ConnectionError):
                await client.execute_command("PING")
            assert client.connection_pool._in_use_connections == set()
            leave(client)
            await wires.exchange(ping, 1)
            assert wires._wires != [wire]

    client = connect(config)
    wires = Wires(client)
    with contextlib.closing(client), contextlib.closing(wires):
        client.execute_command("PING")
        [pooled] = client.connection_pool._available_connections
        socket = pooled._sock
        wires.exchange(ping, 1)
        [idle] = wires._idle
        leave(client)
        client.execute_command("PING")
        assert pooled._sock is not socket
        leave(client)
        with refusing(), pytest.raises(redis.ConnectionError):
            client.execute_command("PING")
        assert client.connection_pool._in_use_connections == set()
        leave(client)
        wires.exchange(ping, 1)
        assert wires._idle != [idle]
    asyncio.run(in_a_loop())


def test_with_the_least_rights(tmp_path: Path, cluster: Cluster) -> None:
    for role in (Role.WORKER, Role.CLIENT):
        words = line(role, NAMESPACE, role.value).replace("CHANGE-ME", "secret").split(" ")
        for node in cluster.nodes:
            command(node, *words)
            command(node, "ACL", "LOG", "RESET")
    worker, client = (
        cluster.url.replace("//", f"//{role.value}:secret@") for role in (Role.WORKER, Role.CLIENT)
    )
    with (
        serving(tmp_path, worker, NAMESPACE, LEDGER, direct_url=cluster.primary.url) as server,
        Client(client, namespace=NAMESPACE) as producer,
    ):
        producer.enqueue("q", "Any", unique_for=60)
        server.wait_for_notes(1, "ran")
        move(cluster, "failover")
        producer.enqueue("q", "Other", unique_for=60)
        server.wait_for_notes(2, "ran")
        assert server.stop() == 0
    for node in cluster.nodes:
        with node.client() as connection:
            assert refused(connection) == []


def test_by_tls(tmp_path: Path, binary: str) -> None:
    """On six nodes, through a failover: the nodes name each other with their ports of TLS."""
    certificates = Certificates(tmp_path / "certificates")
    nodes = Cluster(binary, tmp_path / "nodes", NAMESPACE, certificates)
    with contextlib.closing(nodes):
        config = RedisConfig(nodes.start().url, NAMESPACE, **certificates.of_clients)
        files = certificates.environment
        with (
            serving(tmp_path, config.url, NAMESPACE, LEDGER, direct_url=nodes.primary.url, **files) as server,
            Client.from_config(config) as client,
        ):
            for number in (1, 2):
                client.enqueue("q", "Any")
                assert asyncio.run(AsyncClient.from_config(config).enqueue("q", "Any"))
                server.wait_for_notes(2 * number, "ran")
                if number == 1:
                    nodes.fail_over()
            assert server.stop() == 0
        plain = RedisConfig(config.url.replace("rediss", "redis"), NAMESPACE)
        with pytest.raises(
            RedisUnavailableError, match=r"use rediss\+cluster:// instead of redis\+cluster://"
        ):
            Client.from_config(plain).enqueue("q", "Any")


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            "redis+cluster://{plain}",
            "{plain}: this is not a node of a cluster: use redis:// or rediss:// in redis.url",
        ),
        ("redis+cluster://{absent},{plain}", "{absent}: Connection refused; {plain}: this is not a node"),
        ("redis://{other}", "another node of the cluster holds the keys: MOVED"),
    ],
)
def test_an_error_names_the_fix(cluster: Cluster, one_redis_url: str, url: str, text: str) -> None:
    places = {
        "plain": one_redis_url.removeprefix("redis://").partition("/")[0],
        "absent": f"127.0.0.1:{free_port()}",
        "other": f"127.0.0.1:{cluster.other_primary().port}",
    }
    with pytest.raises(RedisUnavailableError, match=re.escape(text.format(**places))) as caught:
        Client(url.format(**places), namespace=NAMESPACE).enqueue("q", "Any")
    if caught.value.code == "MOVED":
        assert "redis+cluster://HOST:PORT,HOST:PORT" in caught.value.hint


def test_a_reshard_that_takes_long_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script is refused as a whole: with the one key on the other node, it would have written the other."""
    monkeypatch.setattr("pyworkers.store.transport.redirects._MOVING_PATIENCE_S", 0.3)
    with Client(cluster.url, namespace=NAMESPACE) as client:
        client.enqueue("q", "Any", unique_for=60)
        target = cluster.other_primary()
        cluster.begin_reshard(target)
        try:
            with pytest.raises(
                RedisUnavailableError, match="the cluster is moving the keys: TRYAGAIN"
            ) as caught:
                client.enqueue("q", "Other", unique_for=60)
            assert "redis-cli --cluster fix HOST:PORT" in caught.value.hint
        finally:
            cluster.migrate(target)
            cluster.end_reshard(target)
        client.enqueue("q", "Other", unique_for=60)
    assert Queue("q", cluster.url, namespace=NAMESPACE).size == 2


def test_people_read_while_the_slot_moves(cluster: Cluster) -> None:
    """Each key is on one of the two nodes, so what reads several reads them one by one."""
    names = [f"q{number}" for number in range(6)]
    with Client(cluster.url, namespace=NAMESPACE) as client:
        for name in names:
            client.enqueue(name, "Any")
    source, target = cluster.primary, cluster.other_primary()
    keys = [f"{NAMESPACE}{key}" for key in ("stat:processed", "stat:failed")]
    for key, value in zip(keys, (7, 3), strict=True):
        command(source, "SET", key, value)
    cluster.begin_reshard(target)
    for key in (keys[0], *(f"{NAMESPACE}queue:{name}" for name in names[::2])):
        command(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    def read(*words: str) -> Any:
        where = "--url", cluster.url, "--namespace", NAMESPACE, "--json"
        found = CliRunner().invoke(main, [*words, *where])
        assert found.exit_code == 0, found.output
        return json.loads(found.stdout)

    stats = read("stats")
    assert (stats["processed"], stats["failed"]) == (7, 3)
    assert {queue["name"]: queue["size"] for queue in read("queues")} == dict.fromkeys(names, 1)
    for name in ("processes", "workers", "metrics", "limits", "locks", "batches", "errors"):
        read(name)
    cluster.migrate(target)
    cluster.end_reshard(target)


def test_a_script_waits_until_the_slot_has_moved(cluster: Cluster) -> None:
    """On the node that has none of its keys yet, it would not find the lock."""
    target = cluster.other_primary()
    with ThreadPoolExecutor(1) as threads, Client(cluster.url, namespace=NAMESPACE) as client:
        jid = client.enqueue("q", "Any", unique_for=60)
        cluster.begin_reshard(target)
        command(cluster.primary, "MIGRATE", "127.0.0.1", target.port, "{app}:queue:q", 0, 5000)
        waiting = threads.submit(client.enqueue, "q", "Any", unique_for=60)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        cluster.migrate(target)
        cluster.end_reshard(target)
        assert waiting.result() == jid
    assert Queue("q", cluster.url, namespace=NAMESPACE).size == 1


def test_a_script_that_empties_a_list_is_refused_as_a_whole(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its keys are there when it begins; Redis refuses a command for one that it has emptied."""
    monkeypatch.setattr("pyworkers.store.transport.redirects._MOVING_PATIENCE_S", 0.3)
    admin = Admin(RedisConfig(cluster.url, NAMESPACE))
    lists = InProgress(admin.keys, ["q"], "this server")
    for key in (lists.key("q"), lists.source("q")):
        command(cluster.primary, "LPUSH", key, "one", "two")
    command(cluster.primary, "SADD", admin.keys.queues, "q")
    target = cluster.other_primary()
    cluster.begin_reshard(target)
    with contextlib.closing(admin.redis):
        with pytest.raises(RedisUnavailableError, match="the cluster is moving the keys: TRYAGAIN"):
            admin.run(lists.give_back("q"))
        assert command(cluster.primary, "LLEN", lists.key("q")) == 2
        cluster.migrate(target)
        cluster.end_reshard(target)
        assert admin.run(lists.give_back("q")) == 2


PACK: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
INCREASE = [("INCR", "{app}:here"), ("INCR", "{app}:there")]


async def over_a_store(config: RedisConfig) -> list[int]:
    async with connect_async(config) as client:
        return await arun(client, every([command_of(*words, read=integer) for words in INCREASE]))


def over_wires(config: RedisConfig) -> list[int]:
    wires = Wires(connect(config))
    with contextlib.closing(wires):
        return wires.exchange(b"".join(map(PACK, INCREASE)), 2)


async def over_wires_of_a_loop(config: RedisConfig) -> list[int]:
    async with contextlib.aclosing(AsyncWires(connect_async(config))) as wires:
        return await wires.exchange(b"".join(map(PACK, INCREASE)), 2)


async def over_a_link(config: RedisConfig) -> list[int]:
    async with contextlib.aclosing(Link(config)) as link:
        return [await link.execute_command(*words, read=integer) for words in INCREASE]


WAYS: list[Callable[[RedisConfig], list[int]]] = [
    lambda config: Admin(config).run(every([command_of(*words, read=integer) for words in INCREASE])),
    lambda config: asyncio.run(over_a_store(config)),
    over_wires,
    lambda config: asyncio.run(over_wires_of_a_loop(config)),
    lambda config: asyncio.run(over_a_link(config)),
]


@pytest.fixture(params=["ip", "unknown-endpoint"])
def endpoint(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """How the nodes name each other: by address, or by port alone."""
    for node in cluster.nodes:
        node.configure("cluster-preferred-endpoint-type", request.param)
    yield request.param
    for node in cluster.nodes:
        node.configure("cluster-preferred-endpoint-type", "ip")


@pytest.mark.usefixtures("endpoint")
def test_each_command_runs_once_at_the_node_that_has_its_key(cluster: Cluster) -> None:
    """While the slot moves, one of two keys is on one node, and the other one on no node or on the other."""
    command(cluster.primary, "SET", "{app}:here", 0)
    target = cluster.other_primary()
    cluster.begin_reshard(target)
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(way, RedisConfig(cluster.url, NAMESPACE)) for way in WAYS]
        counts = [one.result() for one in found]
    assert [sorted(numbers) for numbers in zip(*counts, strict=True)] == [[1, 2, 3, 4, 5]] * 2
    cluster.migrate(target)
    cluster.end_reshard(target)
    assert [int(command(target, "GET", f"{{app}}:{key}")) for key in ("here", "there")] == [5, 5]


async def test_a_link_keeps_its_connection_to_the_node_that_imports_the_slot(cluster: Cluster) -> None:
    target = cluster.other_primary()

    def clients() -> int:
        return sum(b"cmd=incr" in line for line in command(target, "CLIENT", "LIST").splitlines())

    def opened() -> int:
        with target.client() as client:
            return int(client.info("stats")["total_connections_received"])

    async with contextlib.aclosing(Link(RedisConfig(cluster.url, NAMESPACE))) as link:
        await link.execute_command("PING")
        cluster.begin_reshard(target)
        before = opened()
        for number in range(1, 101):
            assert await link.execute_command("INCR", "{app}:there", read=integer) == number
        # The other nodes, the watch and this test open a few.
        assert opened() - before < 50
        assert clients() == 1
        cluster.migrate(target)
        cluster.end_reshard(target)
        assert await link.execute_command("INCR", "{app}:there", read=integer) == 101
        await async_wait_for(lambda: clients() == 1)


def test_no_lease_ends_while_the_slot_moves(tmp_path: Path, cluster: Cluster) -> None:
    """For more than two leases: no peer recovers a server that runs a job."""
    (tmp_path / "workers.toml").write_text("[server]\nlease = 3\n")
    with contextlib.ExitStack() as stack:
        servers = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            place = tmp_path / name, cluster.url, NAMESPACE, HELD, "--config", str(tmp_path / "workers.toml")
            servers.append(stack.enter_context(serving(*place, direct_url=cluster.primary.url)))
        with Client(cluster.url, namespace=NAMESPACE) as client:
            client.enqueue("q", "Any")
        runner = wait_for(lambda: next((one for one in servers if one.ledger()), None))
        target = cluster.other_primary()
        fill(cluster.primary)
        began = time.monotonic()
        cluster.begin_reshard(target)
        leases = command(cluster.primary, "KEYS", "{app}:pyworkers:lease:*")
        assert len(leases) == 2
        for key in leases:
            command(cluster.primary, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        cluster.migrate(target, 0.005)
        assert time.monotonic() - began > 7
        cluster.end_reshard(target)
        runner.let_go("finish")
        runner.wait_for_event("job.done")
        assert [one.stop() for one in servers] == [0, 0]
        assert len([note for one in servers for note in one.ledger()]) == 1
        for event in ("lease.lost", "process.recovered"):
            assert [one.events(event) for one in servers] == [[], []]
        # That of the start.
        assert [len(one.events("lease.restored")) for one in servers] == [1, 1]


@contextlib.contextmanager
def producing(cluster: Cluster, folder: Path) -> Iterator[list[Producer]]:
    """A producer with each client, both at work."""
    with contextlib.ExitStack() as stack:
        producers = [
            stack.enter_context(Producer(cluster.url, kind, folder / kind, 50, namespace=NAMESPACE))
            for kind in ("client", "async")
        ]
        for producer in producers:
            wait_for(lambda producer=producer: len(producer.acknowledged()) > 30, message="it enqueues")  # type: ignore[misc]
        yield producers


@pytest.mark.parametrize("begins_empty", [True, False])
def test_jobs_are_pushed_while_the_slot_moves(cluster: Cluster, begins_empty: bool) -> None:
    """Wherever the keys are: on no node, on one of the two, or on both of them."""
    target = cluster.other_primary()

    async def push() -> None:
        await asyncio.to_thread(blocking.enqueue, "q", "Any")
        await asyncio.to_thread(blocking.enqueue, "q", "Any", delay=60)
        await other.enqueue("q", "Any")

    async def push_and_move() -> None:
        if not begins_empty:
            await push()
        cluster.begin_reshard(target)
        await push()
        for key in ("queues", "queue:q", "schedule"):
            words = "MIGRATE", "127.0.0.1", target.port, f"{{app}}:{key}", 0, 5000
            assert command(cluster.primary, *words) == (b"NOKEY" if begins_empty else b"OK")
            await push()
        cluster.end_reshard(target)
        await push()
        await other.close()

    other = AsyncClient(cluster.url, namespace=NAMESPACE)
    with Client(cluster.url, namespace=NAMESPACE) as blocking:
        asyncio.run(push_and_move())
    pushes = 5 if begins_empty else 6
    assert command(target, "LLEN", "{app}:queue:q") == 2 * pushes
    assert command(target, "ZCARD", "{app}:schedule") == pushes
    assert command(target, "SMEMBERS", "{app}:queues") == [b"q"]


@pytest.mark.fault("R12")
@pytest.mark.parametrize("way", ["reshard", "slow reshard", "failover", "crash", "hang"])
def test_under_load(tmp_path: Path, cluster: Cluster, way: str) -> None:
    planned = way in ("reshard", "slow reshard", "failover")
    with serving(tmp_path, cluster.url, NAMESPACE, LEDGER, direct_url=cluster.primary.url) as server:
        with contextlib.ExitStack() as stack:
            producers = stack.enter_context(producing(cluster, tmp_path))
            began = time.monotonic()
            if way == "hang":
                stack.enter_context(cluster.primary.stopped())
                cluster.wait_for_election()
            else:
                move(cluster, way)
            moved = time.monotonic()
            for producer in producers:
                first = wait_for(
                    lambda producer=producer: next(  # type: ignore[misc]
                        (call for call in producer.acknowledged() if call.began > moved), None
                    ),
                    message="it enqueues again",
                )
                assert first.ended - moved < stretched(SOON_S)
                last = producer.acknowledged()[-1].ended
                wait_for(lambda producer=producer, last=last: producer.acknowledged()[-1].ended > last + 0.3)  # type: ignore[misc]
        acknowledged = [call for producer in producers for call in producer.acknowledged()]
        kept = {call.jid for call in acknowledged if planned or not is_near(call.ended, began)}
        wait_for(lambda: kept <= {jid for _, _, jid, _ in server.ledger()}, message="all have run")
        runs = server.ledger()
        assert min(at for *_, at in runs if at > moved) - moved < stretched(SOON_S)
        more = Counter(jid for _, _, jid, _ in runs)
        twice = {jid for jid, number in more.items() if number > 1}
        if not planned:
            twice -= {jid for _, _, jid, at in runs if is_near(at, began)}
        assert twice == set()
        refused = [call.code for producer in producers for call in producer.calls() if call.code]
        assert not planned or refused == []
        if way == "slow reshard":
            assert moved - began > 2
            for producer in producers:
                ends = [call.ended for call in producer.acknowledged() if began < call.ended < moved]
                assert max(b - a for a, b in itertools.pairwise(ends)) < stretched(1.0)
        assert server.stop() == 0


def is_near(at: float, crash: float) -> bool:
    return abs(at - crash) < by_load(UNDER_WAY_S)
