"""Replies of an unexpected shape: each ends its connection, and is an outage for who asked."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.histogram import Tally
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.store.changes import ChangesStore
from pyworkers.store.counts import read_counts
from pyworkers.store.cron import CronStore
from pyworkers.store.inspection import inspect
from pyworkers.store.metrics import MetricsStore
from pyworkers.store.orders import OrdersStore
from pyworkers.store.presence import PresenceStore
from pyworkers.store.schedule import Promotion, ScheduleStore
from pyworkers.store.store import LeaseLostError, QueueStore, Store
from pyworkers.store.transport.connections import connect_async
from pyworkers.store.transport.link import Link
from pyworkers.store.waiter import Waiter
from tests.helpers.rewriter import Rewriter, rewriting

SHAPES = {
    "an integer": b":7\r\n",
    "bytes": b"$5\r\nhello\r\n",
    "a status": b"+OK\r\n",
    "a list": b"*1\r\n$1\r\nx\r\n",
    "lists": b"*2\r\n*1\r\n:1\r\n*1\r\n:2\r\n",
    "nothing": b"$-1\r\n",
    "an empty list": b"*0\r\n",
}


class Parts:
    """All that the master asks Redis."""

    def __init__(self, url: str, namespace: str) -> None:
        config = RedisConfig(url=url, namespace=namespace)
        keys = Keys(namespace)
        self.keys = keys
        self._link = Link(config)
        self._redis = connect_async(config)
        self._waiter = Waiter(config, keys, "q", "h:1:a")
        jobs, store = QueueStore(self._link, keys, "h:1:a"), Store(self._redis, keys, "h:1:a")
        schedule, cron = ScheduleStore(self._redis, keys), CronStore(self._redis, keys)
        presence, orders = PresenceStore(self._redis, keys, sidekiq6=True), OrdersStore(self._redis, keys)
        metrics, tally = MetricsStore(self._redis, keys), Tally(processed=1, total_ms=5)
        tally.buckets[0] = 1
        done = [(b"{}", Outcome(Fate.DONE))]

        kinds = {
            "retry": "first",
            "queues": "members",
            "cancelled": "notes",
            "lease": "text",
            "queue": "length",
        }
        own = {"lease": keys.lease("h:1:a"), "queue": keys.queue("q")}
        followed = {own.get(name) or getattr(keys, name): kind for name, kind in kinds.items()}
        self._changes = ChangesStore(config, keys)
        self._changes.follow(followed)

        async def notes() -> None:
            orders.noticed = [time.time(), []]
            await orders.notes()

        self.calls: dict[str, Callable[[], Awaitable[object]]] = {
            "beat": lambda: store.beat(30, ["q"]),
            "exchange": lambda: jobs.exchange("q", done, 2, time.time()),
            "held": lambda: jobs.held("q"),
            "inprogress": lambda: jobs.inprogress("q"),
            "give_back": lambda: jobs.give_back("q"),
            "wait": lambda: self._waiter.wait(lambda _: None),
            "hold_any": lambda: store.hold_any(["q"]),
            "look": lambda: self._changes.read(followed),
            "ask": self._changes.ask,
            "silent_owners": store.silent_owners,
            "recover": lambda: store.recover("h:2:b", ["q"], 5),
            "count": lambda: store.count({"processed": 1}, "2026-01-01"),
            "metrics": lambda: metrics.write({"Add": tally}, datetime.now(UTC)),
            "time": presence.time,
            "presence": lambda: presence.beat("h:1:a", {"info": "{}"}, {"w": "{}"}),
            "prune": presence.prune,
            "presence.leave": lambda: presence.leave("h:1:a"),
            "orders": notes,
            "orders.forget": lambda: orders.forget(["x"]),
            "first_score": lambda: schedule.first_score(keys.retry),
            "promote": lambda: schedule.promote(keys.retry, [Promotion(b"x", b"x", "q")], 1.0, "h:1:a", 5),
            "fire": lambda: cron.fire("sweep", 1, b"{}", "q", 60),
            "last_slots": cron.last_slots,
            "register": lambda: cron.register(["sweep"], 1),
            "version": cron.version,
            "changes": cron.changes,
            "declare": lambda: cron.declare("h:1:a", b"[]", 60),
            "counts": lambda: read_counts(self._redis, keys, ["q"]),
            "inspect": lambda: inspect(self._redis, time.time),
            "leave": lambda: store.leave(["q"]),
        }

    async def prepare(self, *, forget_scripts: bool = False) -> None:
        """So that each call has something to read, and none has to wait."""
        keys, redis = self.keys, self._redis
        if forget_scripts:
            await redis.script_flush()
        for owner in ("h:1:a", "h:2:b", "h:3:c"):
            await redis.hset(keys.owners, owner, '["q"]')
        await redis.sadd(keys.processes, "h:2:b")
        await redis.delete(keys.process_cleanup, keys.cron_slot("sweep", 1), keys.lease("h:2:b"))
        await redis.zadd(keys.retry, {"x": 1.0, "y": 2.0})
        await redis.zadd(keys.cancelled, {f"jid{time.time()}": time.time()})
        await redis.lpush(keys.queue("q"), "{}", "{}", "{}")
        await redis.lpush(keys.inprogress("q", "h:1:a"), "{}")

    async def aclose(self) -> None:
        await self._link.aclose()
        await self._waiter.close()
        await self._redis.aclose()
        await self._changes.close()


def _once(command: str, other: bytes) -> Callable[[str, bytes], bytes]:
    """Put ``other`` in the place of the first reply to this command, if that has another shape."""
    left = [command]

    def rewrite(name: str, reply: bytes) -> bytes:
        if left == [name] and not reply.startswith(b"-"):
            left.clear()
            return other
        return reply

    return rewrite


CALLS = list(Parts("redis://h", "").calls)


@pytest.mark.parametrize("call", CALLS)
async def test_a_reply_of_another_shape_is_an_outage(one_redis_url: str, namespace: str, call: str) -> None:
    async def refuses(proxy: Rewriter, command: str, other: bytes) -> bool:
        async with contextlib.aclosing(Parts(proxy.url, namespace)) as parts:
            await parts.prepare(forget_scripts=command == "EVAL")
            proxy.done.clear()
            proxy.reused.clear()
            proxy.rewrite = _once(command, other)
            try:
                async with asyncio.timeout(5):
                    await parts.calls[call]()
                outage = False
            except RedisUnavailableError as error:
                assert error.code in ("UNEXPECTED", "UNREACHABLE"), (command, other, error)
                outage = True
            except LeaseLostError:
                # An empty list says so.
                outage = False
            # It may be what the server has said itself.
            assert proxy.done == [command] or not outage
            await parts.prepare()
            await parts.calls[call]()
            if outage:
                assert proxy.reused == [], (command, other)
            return outage

    async def commands_of(proxy: Rewriter) -> list[str]:
        seen: list[str] = []
        async with contextlib.aclosing(Parts(proxy.url, namespace)) as parts:
            await parts.prepare()
            proxy.rewrite = lambda name, reply: (seen.append(name), reply)[1]  # type: ignore[func-returns-value]
            await parts.calls[call]()
            assert seen
            return list(dict.fromkeys(seen))

    with rewriting(one_redis_url) as proxy:
        for command in await commands_of(proxy):
            refused = [kind for kind, other in SHAPES.items() if await refuses(proxy, command, other)]
            # A command may give two of the seven: a list and an empty one, bytes and nothing.
            assert len(refused) >= 4, (command, refused)


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("call", CALLS)
async def test_one_reply_too_many_is_the_last_of_its_connection(
    one_redis_url: str, namespace: str, call: str, place: str
) -> None:
    """It may pass for a reply, as one integer for another: the next command must not read what is left."""

    def too_many(name: str, reply: bytes) -> bytes:
        if proxy.done or name == "CLIENT ID" or reply.startswith(b"-"):
            return reply
        return b":1\r\n" + reply if place == "before" else reply + b":1\r\n"

    with rewriting(one_redis_url) as proxy:
        async with contextlib.aclosing(Parts(proxy.url, namespace)) as parts:
            await parts.prepare()
            proxy.done.clear()
            proxy.rewrite = too_many
            with contextlib.suppress(RedisUnavailableError):
                await parts.calls[call]()
            assert len(proxy.done) == 1
            for other in ("held", "version", call):
                await parts.prepare()
                await parts.calls[other]()
            assert proxy.reused == []
