"""When a server counts another one as dead, and how soon it renews its own lease."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from pyworkers.config.fields import LogConfig
from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.server.changes import UnchangedKeys
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.lease import Lease, LeaseDeadlines
from pyworkers.server.recovery import Recovery, Registrations
from pyworkers.store import leases
from pyworkers.store.calls import Request
from pyworkers.store.changes import ChangesStore
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Owner
from tests.helpers.support import async_wait_for

# Long enough that nothing expires during the test by itself.
LEASE_S = 600.0


class Bench(RedisBench):
    """A server, and another one that holds a job and has no lease."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.incarnations = Incarnations("host:1:x", LogConfig(), lambda _: None)
        self.renewals: list[bool] = []
        self.store = Store(self.redis, self.keys)
        self.changes = ChangesStore(self.config, lambda: None)
        self.ends.push_async_callback(self.changes.close)
        self.recovery = self.another(self.incarnations)

    def another(self, incarnations: Incarnations) -> Recovery:
        """The recovery of another server with the same connection."""
        health = Health(time.monotonic, random.Random())
        registrations = Registrations(self.store, incarnations, UnchangedKeys(self.changes, LEASE_S))
        return Recovery(self.store, registrations, health, LEASE_S, lambda _: None)

    async def prepare(self) -> None:
        await Owner(self.redis, self.keys, "host:2:y").renew(LEASE_S, ["q"])
        await self.redis.delete(self.keys.lease("host:2:y"))
        await self.redis.lpush(self.keys.inprogress("q", "host:2:y"), b"job")

    def renewed(self, ago_s: float) -> None:
        """Note a renewal of the own lease."""
        self.incarnations.current.renewed(time.monotonic() - ago_s, ("q",))

    def lease(self, lease_s: float) -> Lease:
        async def renewed(is_new: bool, deadlines: LeaseDeadlines) -> None:
            self.renewals.append(is_new)
            self.deadlines = deadlines

        health = Health(time.monotonic, random.Random())
        lease = Lease(self.store, self.incarnations, health, lease_s, renewed)
        lease.serve(["q"])
        return lease


bench = bench_fixture(Bench)


async def test_an_owner_is_dead_when_it_had_no_lease_for_long_enough(bench: Bench) -> None:
    bench.renewed(0)
    assert await bench.recovery.sweep(1000) == 0
    assert await bench.recovery.sweep(1000 + 0.29 * LEASE_S) == 0
    assert await bench.recovery.sweep(1000 + 0.31 * LEASE_S) == 1


async def test_an_owner_that_cannot_be_recovered_holds_up_no_other(bench: Bench) -> None:
    owners = bench.keys.owners
    await bench.redis.delete(owners)
    # Another program has written the first one, and its list is none. A user of `pyworkers acl` may not even
    # read the keys of such an identity.
    await bench.redis.set(bench.keys.inprogress("q", "odd"), "text")
    await bench.redis.hset(owners, mapping={"odd": '["q"]', "host:2:y": '["q"]', "host:1:x": '["q"]'})
    bench.renewed(0)
    assert await bench.recovery.sweep(1000) == 0
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await bench.recovery.sweep(1000 + 0.31 * LEASE_S)
    assert await bench.waiting() == [b"job"]


async def test_an_owner_that_cannot_be_recovered_delays_no_later_one(bench: Bench) -> None:
    await bench.redis.set(bench.keys.inprogress("q", "odd"), "text")
    await bench.redis.hset(bench.keys.owners, "odd", '["q"]')
    await bench.redis.set(bench.keys.lease("host:2:y"), 1)
    bench.renewed(0)
    assert await bench.recovery.sweep(1000) == 0
    await bench.redis.delete(bench.keys.lease("host:2:y"))
    assert await bench.recovery.sweep(1000 + 0.25 * LEASE_S) == 0
    for number in (0.35, 0.45, 0.56):
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await bench.recovery.sweep(1000 + number * LEASE_S)
        bench.recovery.failed(1)
    assert await bench.waiting() == [b"job"]


async def test_a_lease_that_was_seen_near_its_end_has_expired(bench: Bench) -> None:
    bench.renewed(0)
    bench.recovery.saw_lease("host:2:y", LEASE_S / 3)
    bench.recovery.saw_lease("host:2:y", 0)
    assert await bench.recovery.sweep(1000) == 1


@pytest.mark.parametrize("seen", [[LEASE_S], [LEASE_S / 3, LEASE_S], []])
async def test_a_lease_that_vanished_may_come_back(bench: Bench, seen: list[float]) -> None:
    bench.renewed(0)
    for left_s in (*seen, 0):
        bench.recovery.saw_lease("host:2:y", left_s)
    assert await bench.recovery.sweep(1000) == 0


async def test_one_server_watches_the_leases_of_all(bench: Bench) -> None:
    bench.renewed(0)
    incarnations = Incarnations("host:3:z", LogConfig(), lambda _: None)
    incarnations.current.renewed(time.monotonic(), ("q",))
    second, turn = bench.another(incarnations), bench.keys.turn(bench.keys.owners)
    assert await bench.recovery.sweep(1000) == 0
    assert bench.recovery.turn.is_held
    # Without the turn, a server counts no other as dead, but sees that its own registration was lost.
    for now in (1000, 2000, 3000):
        assert await second.sweep(now) == 0
    assert not incarnations.current.is_registered(("q",)) and not second.turn.is_held
    # A server that waits for one peer, because of an ordered queue, recovers that one itself.
    second.saw_lease("host:2:y", LEASE_S / 3)
    second.saw_lease("host:2:y", 0)
    assert await second.sweep(3001) == 1
    # The turn ends with the server that had it; its successor counts anew.
    await Owner(bench.redis, bench.keys, "host:4:w").renew(LEASE_S, ["q"])
    await bench.redis.delete(bench.keys.lease("host:4:w"), turn)
    assert await second.sweep(4000) == 0
    assert await bench.redis.get(turn) == b"host:3:z"
    assert await bench.redis.hexists(bench.keys.owners, "host:4:w")
    assert await second.sweep(4000 + 0.31 * LEASE_S) == 0
    assert not await bench.redis.hexists(bench.keys.owners, "host:4:w")


async def test_a_server_that_stops_takes_the_turn_no_more(bench: Bench) -> None:
    """Not even by a request under way: it would come after the deregistration, which passes the turn on."""
    turn, key = bench.recovery.turn, bench.keys.turn(bench.keys.owners)
    taking = asyncio.create_task(turn.take())
    await asyncio.sleep(0)
    await turn.end()
    assert taking.done() and await taking
    await bench.redis.delete(key)
    assert not await turn.take()
    assert not await bench.redis.exists(key)


async def test_after_an_outage_no_lease_was_seen(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> Request[list[str]]:
        raise RedisUnavailableError("away")

    bench.renewed(0)
    bench.recovery.saw_lease("host:2:y", LEASE_S / 3)
    with monkeypatch.context() as outage:
        outage.setattr(leases, "owners", away)
        with pytest.raises(RedisUnavailableError):
            await bench.recovery.look()
    assert await bench.recovery.sweep(1000) == 0
    bench.recovery.saw_lease("host:2:y", LEASE_S / 3)
    bench.renewed(ago_s=LEASE_S)
    assert await bench.recovery.sweep(1001) == 0
    bench.renewed(0)
    assert await bench.recovery.sweep(1002) == 0


async def test_no_owner_is_dead_while_redis_renews_no_lease(bench: Bench) -> None:
    bench.renewed(0)
    assert await bench.recovery.sweep(1000) == 0
    # It cannot save to its disk, for example: reads succeed, the leases of all live servers expire.
    bench.renewed(ago_s=LEASE_S)
    for now in (1000 + LEASE_S, 1000 + 2 * LEASE_S):
        assert await bench.recovery.sweep(now) == 0
    # The others have the same time to renew theirs.
    bench.renewed(0)
    assert await bench.recovery.sweep(3000) == 0
    assert await bench.recovery.sweep(3000 + 0.29 * LEASE_S) == 0
    assert await bench.recovery.sweep(3000 + 0.31 * LEASE_S) == 1


async def test_an_identity_may_fetch_from_its_registration_to_the_loss_of_its_lease(bench: Bench) -> None:
    lease, incarnations = bench.lease(LEASE_S), bench.incarnations
    first = incarnations.identity()
    assert not incarnations.may_fetch(first)
    await lease.renew()
    await lease.renew()
    assert incarnations.may_fetch(first)
    incarnations.lost(first)
    second = incarnations.identity()
    assert not incarnations.may_fetch(first) and not incarnations.may_fetch(second)
    await lease.renew()
    assert incarnations.may_fetch(second)
    assert bench.renewals == [True, False, True]


async def test_after_failures_a_lease_is_renewed_before_a_peer_counts_its_owner_as_dead(bench: Bench) -> None:
    assert bench.lease(2).failed(1.0) == 2 / 6
    assert bench.lease(30).failed(1.0) == 1.0


async def test_a_renewal_moves_the_deadlines_of_jobs_that_must_not_overlap(bench: Bench) -> None:
    before = time.monotonic()
    await bench.lease(30.0).renew()
    ask_at_s, end_at_s = bench.deadlines
    assert before + 25 <= ask_at_s <= time.monotonic() + 25
    assert end_at_s - ask_at_s == pytest.approx(2.0)
    await bench.lease(3.0).renew()
    assert bench.deadlines.end_at_s - bench.deadlines.ask_at_s == pytest.approx(0.2)


async def test_registrations_are_read_again_only_after_a_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server with the turn, which reads all names, and by another one, which reads its own."""
    owners, reads = bench.keys.owners, []
    send = bench.changes.send

    async def noted(request: Request[object]) -> object:
        reads.append(request.commands[0].parts[0])
        return await send(request)

    monkeypatch.setattr(bench.changes, "send", noted)
    await bench.redis.set(bench.keys.lease("host:2:y"), 1)
    await bench.lease(LEASE_S).renew()
    incarnations = Incarnations("host:3:z", LogConfig(), lambda _: None)
    await Owner(bench.redis, bench.keys, "host:3:z").renew(LEASE_S, ["q"])
    incarnations.current.renewed(time.monotonic(), ("q",))
    await bench.changes.ask()
    reads.clear()
    second = bench.another(incarnations)

    async def sweep(times: int) -> None:
        for _ in range(times):
            assert await bench.recovery.sweep(1000) == await second.sweep(1000) == 0

    await sweep(3)
    assert reads == ["HKEYS", "HEXISTS"]
    await bench.redis.hdel(owners, "host:3:z")
    await async_wait_for(lambda: not second._registrations._are_current())
    await sweep(1)
    assert reads[2:] == ["HKEYS", "HEXISTS"]
    assert not incarnations.current.is_registered(("q",))
    assert bench.incarnations.current.is_registered(("q",))
    # It is registered again with the next renewal, and reads until then.
    await sweep(2)
    assert reads[4:] == ["HEXISTS", "HEXISTS"]
    # After a failure, each reads: the success of a command ends an outage.
    bench.recovery.failed(1)
    await sweep(1)
    assert reads[6:] == ["HKEYS", "HEXISTS"]


async def test_without_the_connection_with_announcements_the_dead_are_recovered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(_: object) -> object:
        raise RedisUnavailableError("lost")

    await bench.lease(LEASE_S).renew()
    assert await bench.recovery.sweep(0) == 0
    monkeypatch.setattr(bench.changes, "send", send)
    bench.recovery._registrations.forget()
    assert await bench.recovery.sweep(1000) == 1
