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
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.histogram import Tally
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import Fate, Outcome, Report
from pyworkers.store import counters, cron, heartbeat, jobs, leases, notes, sets, suspects
from pyworkers.store.calls import Operation, Request, arun_one
from pyworkers.store.changes import ChangesStore
from pyworkers.store.cron import Firing
from pyworkers.store.jobs import InProgress, LeaseLostError, Settlement, Waiter
from pyworkers.store.measures import runs
from pyworkers.store.preflight import inspect, lacks
from pyworkers.store.processes.cleanup import cleanup
from pyworkers.store.sets import Move
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async
from pyworkers.store.transport.link import Link
from tests.helpers.rewriter import Rewriter, rewriting
from tests.helpers.support import PATIENCE_S

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
        self._waiter = Waiter(config)
        inprogress, store = InProgress(keys, ["q"], "h:1:a"), Store(self._redis, keys)
        tally = Tally(processed=1, total_ms=5)
        tally.buckets[0] = 1
        firing = Firing("sweep", 1, [PushedJob("q", b"{}", "j")], 60)
        done = [Settlement("q", b"{}", Report(Outcome(Fate.DONE)))]

        kinds = {
            "retry": "first",
            "queues": "members",
            "cancelled": "notes",
            "lease": "text",
            "queue": "length",
        }
        own = {"lease": keys.lease("h:1:a"), "queue": keys.queue("q")}
        followed = {own.get(name) or getattr(keys, name): kind for name, kind in kinds.items()}
        self._changes = ChangesStore(config, lambda: None)
        self._changes.follow(followed)

        async def renew() -> None:
            for known in (False, True):
                await store.arun(leases.renew(keys, "h:1:a", 30, ["q"], registered=known))

        def run(work: Callable[[], Operation[object]]) -> Callable[[], Awaitable[object]]:
            return lambda: store.arun(work())

        def send(call: Request[object]) -> Callable[[], Awaitable[object]]:
            return lambda: arun_one(self._link, call)

        self.calls: dict[str, Callable[[], Awaitable[object]]] = {
            "renew": renew,
            "exchange": lambda: inprogress.exchange(self._link, done, 2, ["q"], time.time()),
            "inprogress.count": send(inprogress.count("q")),
            "inprogress.jobs": send(inprogress.jobs("q")),
            "give_back": send(inprogress.give_back("q")),
            "wait": lambda: self._waiter.wait(inprogress.source("q"), inprogress.key("q"), lambda _: None),
            "hold_any": lambda: self._changes.send(jobs.hold_any([inprogress.key("q")])),
            "look": lambda: self._changes.read(followed),
            "ask": self._changes.ask,
            "take_turn": run(lambda: leases.take_turn(keys, "h:1:a", 5, held=False)),
            "is_registered": lambda: self._changes.send(leases.is_registered(keys, "h:1:a")),
            "owners": lambda: self._changes.send(leases.owners(keys)),
            # Without the connection with the announcements.
            "is_registered by the store": run(lambda: leases.is_registered(keys, "h:1:a")),
            "owners by the store": run(lambda: leases.owners(keys)),
            "silent": run(lambda: leases.silent(keys, "h:1:a", ["h:2:b"])),
            "queues_of": run(lambda: leases.queues_of(keys, "h:1:a")),
            "recover": run(lambda: leases.recover(keys, "h:2:b", ["q"], 5)),
            "count": run(lambda: counters.add(keys, {"processed": 1}, "2026-01-01")),
            "runs": run(lambda: runs.add(keys, {"q|p": 1}, time.time())),
            "executions": run(lambda: counters.add_executions(keys, {"Add": tally}, datetime.now(UTC))),
            "clock": run(heartbeat.clock),
            "heartbeat": run(
                lambda: heartbeat.beat(keys, "h:1:a", {"info": "{}"}, {"w": "{}"}, sidekiq6=True)
            ),
            "cleanup": run(lambda: cleanup(keys)),
            "heartbeat.deregister": run(lambda: heartbeat.deregister(keys, "h:1:a", sidekiq6=True)),
            "suspects.read": run(lambda: suspects.read(keys, "h:1:a", ["f"])),
            "suspects.run_alone": run(lambda: suspects.run_alone(keys, "h:1:a", "f")),
            "suspects.run_none": run(lambda: suspects.run_none(keys, "h:1:a")),
            "notes": run(lambda: notes.notes(keys)),
            "notes.note_cancelled": run(lambda: notes.note_cancelled(keys, ["x"])),
            "notes.forget": run(lambda: notes.forget(keys, ["x"])),
            "first_score": run(lambda: sets.first_score(keys.retry)),
            "promote": run(lambda: sets.promote(keys, keys.retry, [Move(b"x", b"x", "q")], 1.0, "h:1:a", 5)),
            "fire": run(lambda: cron.fire(keys, firing)),
            "claim": run(lambda: cron.claim(keys, "h:1:a", firing, 15.0)),
            "last_slots": run(lambda: cron.last_slots(keys)),
            "register": run(lambda: cron.register(keys, ["sweep"], 1)),
            "version": run(lambda: cron.version(keys)),
            "changed": run(lambda: cron.changed(keys)),
            "declare": run(lambda: cron.declare(keys, "h:1:a", b"[]", 60)),
            "counts": run(lambda: counters.read(keys, ["q"])),
            "inspect": run(lambda: inspect("redis-cli", time.time)),
            "lacks": run(lambda: lacks(keys.namespace)),
            "deregister": run(lambda: leases.deregister(keys, "h:1:a", ["q"])),
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
                async with asyncio.timeout(PATIENCE_S):
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
            for other in ("inprogress.count", "version", call):
                await parts.prepare()
                await parts.calls[other]()
            assert proxy.reused == []
