"""What a new viewer gets: no event that is older than its page."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
from starlette.applications import Starlette
from starlette.requests import Request

from pyworkers.api.target import Operation, admin_of
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.web.live import watched
from pyworkers.web.live.reader import Reader
from pyworkers.web.pages import queues, running, servers
from pyworkers.web.several import Sites
from pyworkers.web.site import Site, SiteSettings
from tests.helpers.records import raw_job, register
from tests.helpers.support import PATIENCE_S


def request_to(reader: Reader) -> Request:
    """A request to the dashboard of this reader."""
    application = Starlette()
    application.state.sites, application.state.reader = Sites({}, "default"), reader
    return Request({"type": "http", "root_path": "", "headers": [], "app": application})


class GatedSite(Site):
    """A site whose reads end once the gate is open, and fail while Redis is away."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(admin_of(url, namespace), SiteSettings())
        self.gate = asyncio.Event()
        self.gate.set()
        self.held = asyncio.Event()
        self.is_away = False

    def lose_redis(self) -> None:
        self.is_away = True

    async def read(self, operation: Operation[Any]) -> Any:
        if self.is_away:
            raise RedisUnavailableError("Redis is away")
        found = await super().read(operation)
        if not self.gate.is_set():
            self.held.set()
            await self.gate.wait()
        return found


@asynccontextmanager
async def reading(url: str, namespace: str) -> AsyncIterator[tuple[GatedSite, Reader]]:
    """A reader of this namespace, and its site."""
    site = GatedSite(url, namespace)
    try:
        yield site, Reader(site, {**queues.FEEDS, **running.FEEDS, **servers.FEEDS}, site)
    finally:
        site.gate.set()
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=PATIENCE_S)
        await site.close()


async def event(reader: Reader, *feeds: str) -> dict[str, Any]:
    """The next event of these feeds."""
    async with asyncio.timeout(PATIENCE_S):
        found = await reader.next_event(request_to(reader), feeds)
    return dict(json.loads(found.removeprefix(b"data: ")))


async def watch(reader: Reader, *texts: str) -> None:
    """Look at the running jobs until an event has these texts."""
    async with asyncio.timeout(PATIENCE_S):
        found = ""
        while not all(text in found for text in texts):
            found = str(await event(reader, "running"))


def runs(db: redis.Redis, keys: Keys, *jids: str) -> None:
    """These jobs run now, and no others."""
    register(db, keys, "web:7:a", {"queues": ["q"]}, beat=time.time(), busy=len(jids))
    db.delete(keys.work("web:7:a"))
    for jid in jids:
        work = {"queue": "q", "payload": raw_job(jid).decode(), "run_at": 5}
        db.hset(keys.work("web:7:a"), jid, json.dumps(work))


async def test_the_first_viewer_gets_nothing_of_earlier_viewers(
    one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    async with reading(one_redis_url, namespace) as (_, reader):
        runs(db, keys, "old")
        with reader.viewing():
            await watch(reader, "old", "1 job runs now")
        runs(db, keys, "new", "newer")
        with reader.viewing():
            found = await event(reader, "running")
            assert "old" not in str(found) and "1 job runs now" not in str(found)
            await watch(reader, "new", "2 jobs run now")


async def test_a_viewer_beside_others_gets_no_running_jobs_of_earlier_ones(
    one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reading(one_redis_url, namespace) as (_, reader):
        monkeypatch.setattr(watched, "_WANTED_S", 1.5)
        runs(db, keys, "old")
        with reader.viewing():
            await watch(reader, "old", "1 job runs now")
            runs(db, keys, "new")
            ended = time.monotonic() + 2
            while time.monotonic() < ended:
                await event(reader, "servers")
            assert "old" not in str(await event(reader, "running"))


async def test_a_read_that_began_before_a_viewer_came_is_not_for_it(
    one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    async with reading(one_redis_url, namespace) as (site, reader):
        with reader.viewing():
            await event(reader, "queues")
            site.gate.clear()
            async with asyncio.timeout(PATIENCE_S):
                await site.held.wait()
            db.sadd(keys.queues, "mail")
            db.lpush(keys.queue("mail"), raw_job("j"))
            with reader.viewing():
                later = asyncio.create_task(event(reader, "queues"))
                await asyncio.sleep(0)
                site.gate.set()
                assert (await later)["counts"]["enqueued"] == 1


async def test_no_read_continues_after_the_end(one_redis_url: str, namespace: str) -> None:
    async with reading(one_redis_url, namespace) as (site, reader):
        with reader.viewing():
            site.gate.clear()
            async with asyncio.timeout(PATIENCE_S):
                await site.held.wait()
        await reader.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await site.close()


async def test_without_an_answer_the_first_viewer_keeps_its_page(
    one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    async with reading(one_redis_url, namespace) as (site, reader):
        db.sadd(keys.queues, "mail")
        with reader.viewing():
            assert "mail:size" in (await event(reader, "queues"))["parts"]
        site.lose_redis()
        with reader.viewing():
            found = await event(reader, "queues")
        assert found["counts"] is None
        assert found["parts"] == {"away": "Redis is away"}
