"""Questions about a job, by each kind of client: where it is, what it has saved, its cancellation."""

from __future__ import annotations

import asyncio

import pytest
import redis

from pyworkers import AsyncClient, Client, Worker
from pyworkers.protocol.keys import Keys


def test_an_asyncio_client_reads_the_state_of_a_long_job(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.hset(keys.iteration("j"), mapping={"ex": 2, "c": "[7]", "rt": "1.5", "other": "x"})

    async def read() -> list[object]:
        async with AsyncClient(redis_url, namespace=namespace) as client:
            return [await client.iteration("j"), await client.iteration("unknown")]

    with Client(redis_url, namespace=namespace) as client:
        expected = [client.iteration("j"), client.iteration("unknown")]
    assert asyncio.run(read()) == expected == [{"ex": b"2", "c": b"[7]", "rt": b"1.5"}, {}]


def test_an_application_finds_and_cancels_a_job(redis_url: str, namespace: str) -> None:
    worker = Worker(redis_url, namespace=namespace)
    jid = worker.enqueue("q", "A")
    assert worker.find(jid).state == "waiting"
    assert worker.cancel(jid).value == "removed"
    assert worker.find(jid).state == "unknown"
    worker.client.close()


@pytest.mark.parametrize("name", ["find", "cancel", "iteration"])
async def test_a_search_that_blocks_a_loop_warns(name: str, redis_url: str, namespace: str) -> None:
    message = rf"^{name}\(\) blocks the event loop: await AsyncClient.{name}\(\)$"
    with Client(redis_url, namespace=namespace) as client:
        call = getattr(client, name)
        with pytest.warns(RuntimeWarning, match=message) as caught:
            answer = call("j")
        assert await asyncio.to_thread(call, "j") == answer
    assert [warning.filename for warning in caught] == [__file__]
