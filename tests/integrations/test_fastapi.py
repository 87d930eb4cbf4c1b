"""FastAPI under uvicorn: jobs are enqueued in its loop, and the connections closed with it."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.request import urlopen

import pytest
import redis
from fastapi import FastAPI

from pyworkers import Worker
from pyworkers.errors import ConfigError
from pyworkers.integrations.fastapi import lifespan
from tests.helpers.support import wait_for
from tests.integrations.web import served


def connections(server: redis.Redis, name: str) -> int:
    return sum(1 for client in server.client_list() if client["name"] == name)


def test_a_request_enqueues_and_the_end_closes_the_connections(
    redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{redis_url}?client_name={namespace.strip(':')}"
    worker = Worker(url, namespace=namespace)

    @worker.job(queue="mail")
    def welcome(user_id: int) -> None: ...

    app = FastAPI(lifespan=lifespan(worker))

    @app.get("/{user_id}")
    async def sign_up(user_id: int) -> dict[str, str]:
        return {"jid": await welcome.aenqueue(user_id)}

    with redis.Redis.from_url(redis_url) as server:
        name = namespace.strip(":")
        with served(app) as address:
            assert connections(server, name) == 0
            with urlopen(f"{address}/7") as response:
                jid = json.load(response)["jid"]
            assert connections(server, name) == 1
        wait_for(lambda: connections(server, name) == 0)
        [raw] = server.lrange(f"{namespace}queue:mail", 0, -1)
    job: dict[str, Any] = json.loads(raw)
    assert (job["jid"], job["args"]) == (jid, [7])
    assert job["created_at"] <= time.time()


async def test_an_invalid_configuration_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError):
        async with lifespan(Worker("http://127.0.0.1:1"))(None):
            pass
