"""Many calls at once: each waits for a connection and gets its own outcome, in threads and in event loops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.api import Queue
from pyworkers.asyncclient import AsyncClient
from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.server.waiting import cancel
from pyworkers.store.transport.connections import Turns, connect_async, translate
from pyworkers.store.transport.wire import AsyncWires
from tests.helpers.proxy import Trap, proxied
from tests.helpers.redises import OwnRedis
from tests.helpers.support import PATIENCE_S, async_wait_for, stretched, wait_for


@pytest.fixture
def server(one_redis_url: str) -> Iterator[redis.Redis]:
    """A blocking connection of the test itself."""
    with redis.Redis.from_url(one_redis_url) as connection:
        yield connection


@pytest.fixture
def named(server: redis.Redis, one_redis_url: str, namespace: str) -> tuple[str, Callable[[], int]]:
    """A URL that names its connections, and a function that counts them in Redis."""
    name = namespace.rstrip(":")
    return (
        f"{one_redis_url}?client_name={name}",
        lambda: sum(client["name"] == name for client in server.client_list()),
    )


@pytest.fixture
def own(tmp_path: Path, valkey_binary: str) -> Iterator[OwnRedis]:
    """A running server of the test's own."""
    with OwnRedis(valkey_binary, tmp_path / "redis") as server:
        yield server.start()


def numbers(server: redis.Redis, namespace: str, queue: str = "q") -> Counter[int]:
    """The only argument of each waiting job."""
    raws = server.lrange(f"{namespace}queue:{queue}", 0, -1)
    return Counter(json.loads(raw)["args"][0] for raw in raws)


async def outcomes(*calls: Any) -> list[Any]:
    async with asyncio.timeout(PATIENCE_S):
        return await asyncio.gather(*calls, return_exceptions=True)


# --- event loops ------------------------------------------------------------------------------------------


async def test_a_thousand_calls_in_a_loop_share_a_few_connections(
    named: tuple[str, Callable[[], int]], server: redis.Redis, namespace: str
) -> None:
    url, connections = named
    async with AsyncClient(url, namespace=namespace) as client:
        jids = await outcomes(*(client.enqueue("q", "Add", [n]) for n in range(1000)))
        assert len({jid for jid in jids if isinstance(jid, str)}) == 1000
        assert connections() == 1
    assert numbers(server, namespace) == Counter(range(1000))


@pytest.mark.parametrize(("limit", "expected"), [("", 4), ("&max_connections=2", 2)])
async def test_large_calls_are_spread_over_more_connections(
    named: tuple[str, Callable[[], int]], server: redis.Redis, namespace: str, limit: str, expected: int
) -> None:
    url, connections = named
    rounds = 0
    async with asyncio.timeout(PATIENCE_S), AsyncClient(url + limit, namespace=namespace) as client:
        # One more at a time, while the others are busy; so it takes some rounds, and two more show the limit.
        rounds_left = 2
        while rounds_left:
            await asyncio.gather(*(client.enqueue("q", "Add", [n, "x" * 300_000]) for n in range(20)))
            rounds += 1
            assert connections() <= expected
            rounds_left -= connections() == expected
    assert numbers(server, namespace) == Counter(dict.fromkeys(range(20), rounds))


async def test_a_call_that_is_refused_concerns_no_other(
    one_redis_url: str, server: redis.Redis, namespace: str
) -> None:
    server.set(f"{namespace}queue:broken", "no list")
    async with AsyncClient(one_redis_url, namespace=namespace) as client:
        found = await outcomes(
            *(client.enqueue("broken" if n == 50 else "q", "Add", [n]) for n in range(100))
        )
    assert [n for n, outcome in enumerate(found) if not isinstance(outcome, str)] == [50]
    assert isinstance(found[50], StoreError)
    assert "WRONGTYPE" in str(found[50])
    assert numbers(server, namespace) == Counter(n for n in range(100) if n != 50)


async def test_a_full_server_refuses_what_needs_memory_and_nothing_else(own: OwnRedis) -> None:
    with own.client() as server:
        async with AsyncClient(own.url) as client:
            server.config_set("maxmemory", 1)
            found = await outcomes(*(client.enqueue("q", "Add", [n]) for n in range(50)))
            assert {type(outcome) for outcome in found} == {StoreError}
            server.config_set("maxmemory", 0)
            await client.enqueue("q", "Add", [50])
            assert numbers(server, "") == {50: 1}


async def test_cancelled_calls_concern_no_other(
    one_redis_url: str, server: redis.Redis, namespace: str
) -> None:
    async with AsyncClient(one_redis_url, namespace=namespace) as client:
        await client.enqueue("first", "Add")
        for rounds in range(3):
            calls = [asyncio.create_task(client.enqueue("q", "Add", [n])) for n in range(200)]
            # Not begun, waiting to be sent, sent.
            for _ in range(rounds):
                await asyncio.sleep(0)
            for call in calls[::4]:
                call.cancel()
            found = await outcomes(*calls)
            assert [isinstance(outcome, str) for outcome in found] == [n % 4 != 0 for n in range(200)]
    counts = numbers(server, namespace)
    assert all(counts[n] == 3 if n % 4 else counts[n] <= 2 for n in range(200))


async def test_who_opens_the_connection_may_be_cancelled(one_redis_url: str, namespace: str) -> None:
    async with AsyncClient(one_redis_url, namespace=namespace) as client:
        calls = [asyncio.create_task(client.enqueue("q", "Add", [n])) for n in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        found = await outcomes(*calls)
    assert [isinstance(outcome, str) for outcome in found] == [False, True, True]


async def test_close_waits_for_the_end_of_a_connection_that_is_being_opened(one_redis_url: str) -> None:
    wires = AsyncWires(connect_async(RedisConfig(one_redis_url)))
    opening = wires._open()
    await asyncio.sleep(0)
    await wires.aclose()
    assert opening.cancelled()


async def test_lost_connections_in_a_loop(one_redis_url: str, server: redis.Redis, namespace: str) -> None:
    """Each call ends, what is reported as done is done once, and nothing is sent twice."""

    async def kill() -> None:
        while True:
            await asyncio.to_thread(server.client_kill_filter, _type="normal", skipme=True)
            await asyncio.sleep(0.005)

    found: list[Any] = []
    async with AsyncClient(one_redis_url, namespace=namespace) as client:
        killer = asyncio.create_task(kill())
        # A kill may meet no command under way: until some were lost, and some were not.
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < 2000 or len(set(map(type, found))) < 2:
                first = len(found)
                found += await outcomes(
                    *(client.enqueue("q", "Add", [n, "x" * 5000]) for n in range(first, first + 200))
                )
        await cancel([killer])
    counts = numbers(server, namespace)
    lost = [n for n, outcome in enumerate(found) if not isinstance(outcome, str)]
    assert 0 < len(lost) < len(found)
    assert {type(found[n]) for n in lost} == {RedisUnavailableError}
    assert max(counts.values()) == 1
    assert {n for n, outcome in enumerate(found) if isinstance(outcome, str)} <= counts.keys()


async def test_redis_is_killed_under_many_calls(own: OwnRedis) -> None:
    async with AsyncClient(own.url) as client:
        await client.enqueue("q", "Add")
        calls = [asyncio.create_task(client.enqueue("q", "Add", ["x" * 100_000])) for _ in range(500)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        # At once: a thread might begin when all calls have ended.
        own.kill()
        found = await outcomes(*calls)
        kinds = Counter(type(outcome) for outcome in found)
        assert kinds.keys() == {str, RedisUnavailableError}
        await asyncio.to_thread(own.start)
        again = await outcomes(*(client.enqueue("q", "Add") for _ in range(500)))
        assert all(isinstance(outcome, str) for outcome in again)


async def test_what_was_not_sent_goes_over_the_next_connection(
    one_redis_url: str, server: redis.Redis, namespace: str
) -> None:
    """Of two hundred calls the first alone was sent when the connection is lost."""
    with proxied(one_redis_url) as proxy:
        async with AsyncClient(proxy.url, namespace=namespace) as client:
            await client.enqueue("q", "Add", [-1])
            [wire] = next(iter(client._open.values())).wires._wires
            wire.pause_writing()
            calls = [asyncio.create_task(client.enqueue("q", "Add", [n])) for n in range(200)]
            await async_wait_for(calls[0].done)
            assert proxy.drop() == 1
            found = await outcomes(*calls)
    # The first was written at once, and answered.
    assert all(isinstance(outcome, str) for outcome in found)
    assert numbers(server, namespace) == Counter(range(-1, 200))


async def test_many_calls_on_a_replica_open_one_more_connection(own: OwnRedis) -> None:
    with own.client() as server:
        async with AsyncClient(own.url) as client:
            await client.enqueue("q", "Add")
            server.replicaof("127.0.0.1", 1)
            before = server.info("stats")["total_connections_received"]
            found = await outcomes(*(client.enqueue("q", "Add") for _ in range(200)))
            assert {type(outcome) for outcome in found} == {RedisUnavailableError}
            assert {outcome.code for outcome in found} == {"READONLY"}
            assert server.info("stats")["total_connections_received"] - before <= 3
            server.replicaof("NO", "ONE")
            await client.enqueue("q", "Add")


async def test_silence_fails_all_calls_in_time(one_redis_url: str, namespace: str) -> None:
    with proxied(one_redis_url) as proxy:
        trap = proxy.trap(Trap(b"LPUSH"))
        # Longer than the machine stalls: the greeting has no more time.
        async with AsyncClient(f"{proxy.url}?socket_timeout=2.5", namespace=namespace) as client:
            async with asyncio.timeout(stretched(2 * 2.5)):
                found = await outcomes(*(client.enqueue("q", "Add") for _ in range(50)))
        assert trap.sprung == 1
    # What had not been sent when the time was over has waited for as long.
    assert {outcome.code for outcome in found} == {"TIMEOUT"}


async def test_a_client_that_is_closed_ends_what_is_under_way(one_redis_url: str, namespace: str) -> None:
    client = AsyncClient(one_redis_url, namespace=namespace)
    for rounds in range(4):
        calls = [asyncio.create_task(client.enqueue("q", "Add")) for _ in range(100)]
        for _ in range(rounds):
            await asyncio.sleep(0)
        await client.close()
        found = await outcomes(*calls)
        assert {type(outcome) for outcome in found} <= {str, RedisUnavailableError}
    await client.enqueue("q", "Add")
    await client.close()


async def test_commands_of_one_pool_wait_for_each_other(one_redis_url: str) -> None:
    """As those of the master, and of ``pyworkers check``."""

    async with connect_async(RedisConfig(url=f"{one_redis_url}?max_connections=2")) as client:
        found = await outcomes(*(client.execute_command("ECHO", str(n)) for n in range(300)))
        assert found == [str(n).encode() for n in range(300)]


# --- threads ----------------------------------------------------------------------------------------------


def in_threads(count: int, work: Callable[[int], object]) -> list[Exception]:
    """Run ``work`` in this many threads at once; what they raised."""
    errors: list[Exception] = []
    begin = threading.Barrier(count)

    def run(number: int) -> None:
        begin.wait()
        try:
            work(number)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    return errors


@pytest.mark.parametrize(("limit", "most"), [("", 100), ("&max_connections=3", 3)])
def test_two_hundred_threads_share_a_client(
    named: tuple[str, Callable[[], int]], server: redis.Redis, namespace: str, limit: str, most: int
) -> None:
    url, connections = named
    with Client(url + limit, namespace=namespace) as client:

        def work(number: int) -> None:
            for repeat in range(5):
                client.enqueue("q", "Add", [5 * number + repeat])

        assert in_threads(200, work) == []
        assert 0 < connections() <= most
    assert numbers(server, namespace) == Counter(range(1000))


def test_two_hundred_threads_share_an_object_of_the_api(one_redis_url: str, namespace: str) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("q", "Add")
    queue = Queue("q", one_redis_url, namespace=namespace)
    sizes: list[int] = []
    assert in_threads(200, lambda _: sizes.extend(queue.size for _ in range(3))) == []
    assert sizes == [1] * 600


def test_a_thread_waits_no_longer_than_a_reply_may_take(one_redis_url: str, namespace: str) -> None:
    with proxied(one_redis_url) as proxy:
        # Whoever has the connection waits as long, also one that gets it late.
        trap = proxy.trap(Trap(b"LPUSH", action="hold", times=3))
        # Longer than the machine stalls: the three wait at the same time.
        url = f"{proxy.url}?max_connections=1&socket_timeout=4"
        with Client(url, namespace=namespace) as client:
            found: list[PyworkersError | None] = []

            def enqueue() -> None:
                try:
                    client.enqueue("q", "Add")
                except PyworkersError as error:
                    found.append(error)
                else:
                    found.append(None)

            threads = [threading.Thread(target=enqueue) for _ in range(3)]
            threads[0].start()
            wait_for(lambda: trap.sprung)
            for thread in threads[1:]:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            trap.release()
            assert [error and error.code for error in found] == ["TIMEOUT"] * 3
            # The time of the one that was sent is over at about the same moment.
            assert any("none of the 1 connections became free within 4 s" in str(error) for error in found)
            client.enqueue("q", "Add")


def test_a_forked_process_has_all_turns_again(
    one_redis_url: str, server: redis.Redis, namespace: str
) -> None:
    with proxied(one_redis_url) as proxy:
        trap = proxy.trap(Trap(b"LPUSH", action="hold"))
        with Client(f"{proxy.url}?max_connections=1", namespace=namespace) as client:
            threads = [threading.Thread(target=client.enqueue, args=("q", "Add", [n])) for n in range(3)]
            for thread in threads:
                thread.start()
            wait_for(lambda: trap.sprung)
            # One has the only connection, the others wait for it.
            pid = os.fork()
            if pid == 0:
                try:
                    client.enqueue("child", "Add", [0])
                    os._exit(0)
                finally:
                    os._exit(1)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            trap.release()
            for thread in threads:
                thread.join(PATIENCE_S)
    assert status == 0
    assert numbers(server, namespace, "child") == Counter([0])
    assert numbers(server, namespace) == Counter(range(3))


def test_a_wait_that_is_interrupted_costs_no_turn() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    turns = Turns(1)

    def interrupt_the_wait() -> None:
        wait_for(lambda: held._waiting)
        # It is in the queue, and is about to wait.
        time.sleep(0.05)
        signal.pthread_kill(me, signal.SIGUSR1)

    me = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for _ in range(3):
            held = turns.take(0)
            threading.Thread(target=interrupt_the_wait).start()
            with pytest.raises(Interrupted):
                turns.take(2 * PATIENCE_S)
            held.leave()
            turns.take(0).leave()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_turns_go_to_who_came_first() -> None:
    turns = Turns(1)
    held = turns.take(0)
    order: list[int] = []

    def work(number: int) -> None:
        turn = turns.take(PATIENCE_S)
        order.append(number)
        turn.leave()

    threads = []
    for number in range(20):
        threads.append(threading.Thread(target=work, args=(number,)))
        threads[-1].start()
        wait_for(lambda number=number: len(held._waiting) == number + 1)  # type: ignore[misc]
    held.leave()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == list(range(20))


def test_no_turn_is_lost_or_made_in_a_crowd() -> None:
    turns = Turns(3)
    inside: list[None] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            try:
                turn = turns.take(0.0005 if number % 2 else PATIENCE_S)
            except redis.TimeoutError:
                continue
            inside.append(None)
            most.append(len(inside))
            inside.pop()
            turn.leave()

    assert in_threads(12, work) == []
    assert max(most) <= 3
    for turn in [turns.take(0) for _ in range(3)]:
        turn.leave()
    held = [turns.take(0) for _ in range(3)]
    with pytest.raises(redis.TimeoutError) as caught:
        turns.take(0.01)
    assert translate(caught.value).code == "TIMEOUT"
    assert len(held) == 3
