"""Clients against real servers: what arrives in Redis, and what survives forks, loops and restarts."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import AsyncClient, Client, Worker
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError, RedisUnavailableError, StoreError
from pyworkers.store.acl import Role
from pyworkers.store.transport.connections import connect
from tests.helpers.acl import url_of
from tests.helpers.support import free_port, running_server, wait_for


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    """It does all its work with the rights of a client."""
    with Client(url_of(redis_url, Role.CLIENT, namespace), namespace=namespace) as client:
        yield client


def waiting(server: Any, namespace: str, queue: str = "q") -> list[dict[str, Any]]:
    """The jobs of a queue in the order in which they are popped."""
    return [json.loads(raw) for raw in reversed(server.lrange(f"{namespace}queue:{queue}", 0, -1))]


def scheduled(server: Any, namespace: str) -> list[tuple[dict[str, Any], float]]:
    found = server.zrange(f"{namespace}schedule", 0, -1, withscores=True)
    return [(json.loads(raw), score) for raw, score in found]


# --- what arrives -----------------------------------------------------------------------------------------


def test_jobs_of_an_application_are_enqueued_from_several_event_loops(
    redis_url: str, server: redis.Redis, namespace: str
) -> None:
    worker = Worker(url_of(redis_url, Role.CLIENT, namespace), namespace=namespace)

    @worker.job(queue="q", retry=3)
    def add(a: int, b: int) -> int:
        return a + b

    async def enqueue(first: int) -> list[str]:
        jids = await asyncio.gather(*(add.aenqueue(first, n) for n in range(20)))
        return [*jids, *await add.aenqueue_bulk([(first, 20), (first, 21)])]

    jids = [*asyncio.run(enqueue(1)), *asyncio.run(enqueue(2))]
    jobs = {job["jid"]: job for job in waiting(server, namespace)}
    assert [jobs[jid]["args"] for jid in jids] == [[first, n] for first in (1, 2) for n in range(22)]
    assert {job["retry"] for job in jobs.values()} == {3}


def test_enqueue(client: Client, server: redis.Redis, namespace: str) -> None:
    before = time.time()
    jids = [client.enqueue("q", "Add", [n, "é"]) for n in (1, 2)]
    jobs = waiting(server, namespace)
    assert [(job["jid"], job["args"], job["class"], job["queue"]) for job in jobs] == [
        (jids[0], [1, "é"], "Add", "q"),
        (jids[1], [2, "é"], "Add", "q"),
    ]
    assert server.smembers(f"{namespace}queues") == {b"q"}
    assert before <= jobs[0]["created_at"] == jobs[0]["enqueued_at"] <= time.time()
    assert scheduled(server, namespace) == []


def test_enqueue_for_later(client: Client, server: redis.Redis, namespace: str) -> None:
    before = time.time()
    at = before + 1000.125
    jids = [client.enqueue_in(60, "q", "Add", [1]), client.enqueue_at(at, "q", "Add", [2])]
    (first, first_at), (second, second_at) = scheduled(server, namespace)
    assert [first["jid"], second["jid"]] == jids
    assert before + 60 <= first_at <= time.time() + 60
    assert second_at == at
    assert not {"at", "enqueued_at"} & (first.keys() | second.keys())
    assert waiting(server, namespace) == []
    # As in Sidekiq, the queue is listed when the first job is due.
    assert not server.exists(f"{namespace}queues")


def test_a_moment_that_has_passed_is_now(client: Client, server: redis.Redis, namespace: str) -> None:
    client.enqueue_at(time.time() - 1, "q", "Add")
    client.enqueue_in(0, "q", "Add")
    assert len(waiting(server, namespace)) == 2


@pytest.mark.parametrize("delay", [None, 60])
def test_enqueue_bulk(client: Client, server: redis.Redis, namespace: str, delay: float | None) -> None:
    jids = client.enqueue_bulk("q", "Add", ([n] for n in range(2500)), delay=delay)
    jobs = [job for job, _ in scheduled(server, namespace)] if delay else waiting(server, namespace)
    assert len(set(jids)) == 2500
    by_jid = {job["jid"]: job["args"] for job in jobs}
    assert [by_jid[jid] for jid in jids] == [[n] for n in range(2500)]
    if not delay:
        assert [job["jid"] for job in jobs] == jids


def test_a_bulk_stops_at_the_first_bad_job(client: Client, server: redis.Redis, namespace: str) -> None:
    with pytest.raises(BadArgumentError, match=r"args_list\[1500\]\[0\] is of type set"):
        client.enqueue_bulk("q", "Add", ([n if n < 1500 else {n}] for n in range(3000)))
    assert len(waiting(server, namespace)) == 1000


def test_a_push_is_one_transaction_and_a_job_for_later_one_command(
    redis_url: str, client: Client, server: redis.Redis, namespace: str
) -> None:
    """The commands on the wire, in their order."""

    async def enqueue_twice() -> None:
        async with AsyncClient(redis_url, namespace=namespace) as other:
            await other.enqueue("q", "Add", [1])
            await other.enqueue_in(60, "q", "Add", [1])

    with server.monitor() as monitor:
        client.enqueue("q", "Add", [1])
        client.enqueue_in(60, "q", "Add", [1])
        asyncio.run(enqueue_twice())
        server.publish(f"{namespace}end", "")
        seen = takewhile(lambda entry: "PUBLISH" not in entry["command"], monitor.listen())
        commands = [entry["command"].split(" ")[:3] for entry in seen]
    pushed = [words[:2] for words in commands if words[0] in ("MULTI", "EXEC") or namespace in words[1]]
    once = [
        ["MULTI"],
        ["SADD", f"{namespace}queues"],
        ["LPUSH", f"{namespace}queue:q"],
        ["EXEC"],
        ["ZADD", f"{namespace}schedule"],
    ]
    assert pushed == once * 2


def test_nothing_is_no_push(client: Client, server: redis.Redis, namespace: str) -> None:
    assert client.enqueue_bulk("q", "Add", []) == []
    client.push([])
    assert not server.exists(f"{namespace}queues")


def test_a_bad_job_leaves_nothing(client: Client, server: redis.Redis, namespace: str) -> None:
    with pytest.raises(BadArgumentError):
        client.enqueue("q", "Add", [b"x"])
    assert server.keys(f"{namespace}*") == []


def test_a_job_of_a_worker_arrives(redis_url: str, server: redis.Redis, namespace: str) -> None:
    worker = Worker(redis_url, namespace=namespace)

    @worker.job(queue="mail", retry=5)
    def send(user_id: int, subject: str = "hi") -> None: ...

    send.enqueue(7, subject="hello")
    send.enqueue_bulk([(1,), (2, "b")])
    assert [(job["class"], job["args"], job["retry"]) for job in waiting(server, namespace, "mail")] == [
        ("send", [7, "hello"], 5),
        ("send", [1], 5),
        ("send", [2, "b"], 5),
    ]
    worker.client.close()


# --- asyncio ----------------------------------------------------------------------------------------------


async def test_the_async_client_does_the_same(redis_url: str, server: redis.Redis, namespace: str) -> None:
    async with AsyncClient(redis_url, namespace=namespace) as client:
        jids = [await client.enqueue("q", "Add", [1], tags=["x"])]
        await client.enqueue_in(60, "q", "Add", [2])
        await client.enqueue_at(4e9, "q", "Add", [3])
        jids += await client.enqueue_bulk("q", "Add", ([n] for n in range(1500)))
    assert [job["jid"] for job in waiting(server, namespace)] == jids
    assert [job["args"] for job, _ in scheduled(server, namespace)] == [[2], [3]]


def test_the_async_client_outlives_its_loop(redis_url: str, server: redis.Redis, namespace: str) -> None:
    client = AsyncClient(redis_url, namespace=namespace)
    connections = len(server.client_list())
    for n in range(3):
        asyncio.run(_enqueue_many(client, n))
    assert len(waiting(server, namespace)) == 3 * 20
    # Each loop has closed its connections, without a call of close().
    wait_for(lambda: len(server.client_list()) <= connections)


async def _enqueue_many(client: AsyncClient, n: int) -> None:
    await asyncio.gather(*(client.enqueue("q", "Add", [n, k]) for k in range(20)))


def test_two_loops_at_once(redis_url: str, server: redis.Redis, namespace: str) -> None:
    client = AsyncClient(redis_url, namespace=namespace)
    threads = [threading.Thread(target=asyncio.run, args=(_enqueue_many(client, n),)) for n in range(4)]
    _run_all(threads)
    assert len(waiting(server, namespace)) == 4 * 20


async def test_the_async_client_closes_in_its_loop(redis_url: str, namespace: str) -> None:
    client = AsyncClient(redis_url, namespace=namespace)
    await client.close()
    await client.enqueue("q", "Add")
    await client.close()
    await client.enqueue("q", "Add")


# --- threads and forks ------------------------------------------------------------------------------------


def _run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fork(child: Callable[[], None]) -> int:
    """Run ``child`` in a forked process; its exit status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("used_before", [False, True])
def test_a_client_works_on_both_sides_of_a_fork(
    client: Client, server: redis.Redis, namespace: str, used_before: bool
) -> None:
    def child() -> None:
        for _ in range(20):
            client.enqueue("q", "Child")
        client.close()

    if used_before:
        client.enqueue("q", "Before")
    pids = [fork(child) for _ in range(3)]
    for _ in range(20):
        client.enqueue("q", "Parent")
    jobs = waiting(server, namespace)
    classes = [job["class"] for job in jobs]
    assert pids == [0, 0, 0]
    assert (classes.count("Child"), classes.count("Parent")) == (60, 20)
    assert len({job["jid"] for job in jobs}) == len(jobs)


def test_a_fork_leaves_the_parents_connection_open(
    client: Client, server: redis.Redis, namespace: str
) -> None:
    client.enqueue("q", "Add")
    connections = {entry["id"] for entry in server.client_list()}

    def child() -> None:
        client.enqueue("q", "Add")
        client.close()

    assert fork(child) == 0
    client.enqueue("q", "Add")
    assert {entry["id"] for entry in server.client_list()} <= connections


def test_parent_and_child_at_once(client: Client, server: redis.Redis, namespace: str) -> None:
    client.enqueue("q", "Before")
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(200):
                client.enqueue("child", "Add")
        finally:
            os._exit(0)
    for _ in range(200):
        client.enqueue("parent", "Add")
    os.waitpid(pid, 0)
    assert [len(waiting(server, namespace, queue)) for queue in ("child", "parent")] == [200, 200]


def test_an_async_client_works_after_a_fork(redis_url: str, server: redis.Redis, namespace: str) -> None:
    client = AsyncClient(redis_url, namespace=namespace)
    asyncio.run(_enqueue_many(client, 0))
    assert fork(lambda: asyncio.run(_enqueue_many(client, 1))) == 0
    asyncio.run(_enqueue_many(client, 2))
    assert [job["args"][0] for job in waiting(server, namespace)].count(1) == 20
    assert len(waiting(server, namespace)) == 60


# --- bad health ------------------------------------------------------------------------------------------


def test_no_program_listens(namespace: str) -> None:
    url = f"redis://:secret@127.0.0.1:{free_port()}/0"
    with pytest.raises(RedisUnavailableError, match="Redis cannot be reached") as caught:
        Client(url).enqueue("q", "Add")
    assert "secret" not in str(caught.value)
    with pytest.raises(RedisUnavailableError, match="Redis cannot be reached"):
        asyncio.run(AsyncClient(url).enqueue("q", "Add"))


def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0?socket_timeout=0.1"
        with Client(url) as client, pytest.raises(RedisUnavailableError, match="did not answer in time"):
            client.enqueue("q", "Add")


def test_a_refused_login(redis_url: str, server: redis.Redis, namespace: str) -> None:
    name = f"user-{namespace.rstrip(':')}"
    server.acl_setuser(name, enabled=True, passwords=["+right"], keys=["*"], commands=["+@all"])
    try:
        address = redis_url.removeprefix("redis://")
        with Client(f"redis://{name}:right@{address}", namespace=namespace) as client:
            client.enqueue("q", "Add")
        with Client.from_config(
            RedisConfig(url=redis_url, namespace=namespace, username=name, password="right")
        ) as client:
            client.enqueue("q", "Add")
        with pytest.raises(RedisUnavailableError, match="Redis refused the login") as caught:
            Client(f"redis://{name}:wrong@{address}", namespace=namespace).enqueue("q", "Add")
        assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
        with pytest.raises(RedisUnavailableError, match="Redis refused the login"):
            asyncio.run(AsyncClient(f"redis://{name}:wrong@{address}").enqueue("q", "Add"))
    finally:
        server.acl_deluser(name)
    assert len(waiting(server, namespace)) == 2


def test_a_user_with_no_more_rights_than_a_producer_needs(
    redis_url: str, server: redis.Redis, namespace: str
) -> None:
    name = f"user-{namespace.rstrip(':')}"
    commands = ["-@all", "+sadd", "+lpush", "+zadd", "+multi", "+exec"]
    server.acl_setuser(name, enabled=True, passwords=["+word"], keys=["*"], commands=commands)
    try:
        url = f"redis://{name}:word@{redis_url.removeprefix('redis://')}"
        with Client(url, namespace=namespace) as client:
            client.enqueue("q", "Add")
            client.enqueue_in(60, "q", "Add")
            server.acl_setuser(name, commands=["-lpush"])
            with pytest.raises(StoreError, match="lpush"):
                client.enqueue("q", "Add")
    finally:
        server.acl_deluser(name)
    assert len(waiting(server, namespace)) == 1


def test_a_refused_push_leaves_nothing(client: Client, server: redis.Redis, namespace: str) -> None:
    server.set(f"{namespace}queues", "not a set")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        client.enqueue("q", "Add")
    server.delete(f"{namespace}queues")
    client.enqueue("q", "Add")


# A client looks whether Redis has closed its connection when it was idle for a second.
IDLE_S = 1.05


@pytest.mark.parametrize("busy", [False, True])
async def test_an_idle_async_connection_that_redis_closed_is_replaced(
    redis_url: str, server: redis.Redis, namespace: str, busy: bool
) -> None:
    async with AsyncClient(redis_url, namespace=namespace) as client:
        await client.enqueue("q", "Add", [1])
        server.client_kill_filter(_type="normal", skipme=True)
        # The loop that was busy has not seen the end of the connection when the second push begins.
        if busy:
            time.sleep(IDLE_S)
        else:
            await asyncio.sleep(IDLE_S)
        await client.enqueue("q", "Add", [2])
    assert [job["args"] for job in waiting(server, namespace)] == [[1], [2]]


@contextmanager
def a_server_that_hangs_up() -> Iterator[tuple[str, list[bytes]]]:
    """Answers OK until it is asked for a transaction, and then closes the connection without a reply."""
    received: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    while b"MULTI" not in (data := connection.recv(4096)) and data:
                        connection.sendall(b"+OK\r\n" * data.count(b"SETINFO"))
                    received.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0", received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_lost_reply_is_reported_and_nothing_is_sent_twice() -> None:
    with a_server_that_hangs_up() as (url, received):
        with Client(url) as client, pytest.raises(RedisUnavailableError, match="cannot be reached"):
            client.enqueue("q", "Add", ["once"])
        with pytest.raises(RedisUnavailableError, match="cannot be reached"):
            asyncio.run(AsyncClient(url).enqueue("q", "Add", ["once"]))
    assert [data.count(b"once") for data in received] == [1, 1]


def test_a_lost_reply_is_no_refusal_though_one_is_being_handled() -> None:
    """An exception knows which other one was being handled, perhaps one of the application's own."""
    with a_server_that_hangs_up() as (url, received), Client(url) as client:
        try:
            raise redis.ReadOnlyError("READONLY of another server")
        except redis.ReadOnlyError:
            with pytest.raises(RedisUnavailableError):
                client.enqueue("q", "Add", ["once"])
            with pytest.raises(RedisUnavailableError):
                asyncio.run(AsyncClient(url).enqueue("q", "Add", ["once"]))
    assert [data.count(b"once") for data in received] == [1, 1]


def test_a_server_that_was_restarted(tmp_path: Path, one_binary: str) -> None:
    port = free_port()
    with running_server(one_binary, tmp_path, port) as url:
        client = Client(url)
        client.enqueue("q", "Add")
    with pytest.raises(RedisUnavailableError):
        client.enqueue("q", "Add")
    with running_server(one_binary, tmp_path, port):
        client.enqueue("q", "Add")
        client.close()


def test_a_full_server(tmp_path: Path, one_binary: str) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url, Client(url) as client:
        client.enqueue("q", "Add")
        with redis.Redis.from_url(url) as server:
            server.config_set("maxmemory", 1)
            with pytest.raises(StoreError, match=r"memory is full \(maxmemory\): .*maxmemory"):
                client.enqueue("q", "Add")
            server.config_set("maxmemory", 0)
        client.enqueue("q", "Add")


def test_a_replica_refuses_and_is_asked_once_more(tmp_path: Path, one_binary: str) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url, Client(url) as client:
        client.enqueue("q", "Add")
        with redis.Redis.from_url(url) as server:
            server.replicaof("127.0.0.1", free_port())
            before = server.info("commandstats")["cmdstat_multi"]["calls"]
            connections = server.info("stats")["total_connections_received"]
            with pytest.raises(RedisUnavailableError, match="read only replica"):
                client.enqueue("q", "Add")
            with pytest.raises(RedisUnavailableError, match="read only replica"):
                asyncio.run(AsyncClient(url).enqueue("q", "Add"))
            assert server.info("commandstats")["cmdstat_multi"]["calls"] - before == 4
            # The second time on a new one, which may lead elsewhere; the second client had none before.
            assert server.info("stats")["total_connections_received"] - connections == 3
            server.replicaof("NO", "ONE")
        client.enqueue("q", "Add")


def test_a_socket_and_an_embedded_server(tmp_path: Path, valkey_binary: str) -> None:
    with running_server(valkey_binary, tmp_path, free_port()) as url, redis.Redis.from_url(url) as server:
        (tmp_path / "valkey.sock").symlink_to(tmp_path / "redis.sock")
        for other in (f"unix://{tmp_path}/redis.sock", f"embedded:{tmp_path}"):
            with Client(other) as client:
                client.enqueue("q", "Add")
            asyncio.run(AsyncClient(other).enqueue("q", "Add"))
        assert len(waiting(server, "")) == 4


def test_a_server_that_a_sentinel_knows(sentinel_url: str) -> None:
    with Client(sentinel_url) as client:
        client.enqueue("q", "Add", [1])
        asyncio.run(AsyncClient(sentinel_url).enqueue("q", "Add", [2]))
        with connect(client.config) as server:
            assert [job["args"] for job in waiting(server, "")] == [[1], [2]]


def test_a_primary_that_no_sentinel_knows(sentinel_url: str) -> None:
    wrong = sentinel_url.replace("main", "other")
    absent, present = sentinel_url.removeprefix("redis+sentinel://").partition("/")[0].split(",")
    expected = (
        f"the sentinels name no primary: {absent}: Connection refused; "
        f"{present}: no primary has the name 'other', only 'main': correct the name in redis.url"
    )
    with pytest.raises(RedisUnavailableError) as blocking:
        Client(wrong).enqueue("q", "Add")
    with pytest.raises(RedisUnavailableError) as in_loop:
        asyncio.run(AsyncClient(wrong).enqueue("q", "Add"))
    assert (blocking.value.message, in_loop.value.message) == (expected, expected)
    assert (blocking.value.code, in_loop.value.code) == ("NOMASTER", "NOMASTER")
