"""Jobs of dead servers: their mark, their entry, and the one suspect that a server ran."""

from __future__ import annotations

import hashlib

import pytest

from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome
from pyworkers.protocol.suspects import SuspectEntry, deleting_entry, field_of
from pyworkers.store import suspects
from pyworkers.store.calls import arun
from pyworkers.store.suspects import ENTRIES_TTL_S, NotedSuspects
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Owner

NOW = 1_795_225_197.5
JOB, OTHER = b'{"jid":"a"}', b'{"jid":"b"}'


class Bench(RedisBench):
    """Servers that take jobs and die."""

    deaths = 0

    async def prepare(self) -> None:
        self.connected = self.connection()
        self.peer = Owner(self.connected, self.keys, "peer:1:aaa")

    async def take(self, wanted: int = 1, queue: str = "q") -> Owner:
        """A new server that has taken jobs."""
        self.deaths += 1
        owner = Owner(self.connected, self.keys, f"host:{self.deaths}:abc")
        await owner.renew(30, [queue])
        assert len((await owner.exchange(queue, [], wanted, NOW)).jobs) == wanted
        return owner

    async def end(self, owner: Owner, most: int = 100, queue: str = "q") -> int:
        """It is dead, and its jobs are recovered in one call."""
        await self.redis.delete(self.keys.lease(owner.identity))
        return await self.peer.recover(owner.identity, [queue], most)

    async def runs(self, owner: Owner, job: bytes) -> None:
        await arun(self.connected, suspects.run_alone(self.keys, owner.identity, field_of(job)))

    async def read(self, owner: Owner, *jobs: bytes) -> NotedSuspects:
        return await arun(self.connected, suspects.read(self.keys, owner.identity, list(map(field_of, jobs))))


bench = bench_fixture(Bench)


async def test_a_recovered_job_is_marked_once_and_counted_each_time(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB, OTHER)
    for servers in (1, 2, 3):
        assert await bench.end(await bench.take()) == 1
        assert await bench.waiting() == [JOB + b"\t", OTHER]
        assert await bench.redis.hgetall(bench.keys.suspects) == {
            hashlib.sha1(JOB).hexdigest().encode(): b"%d 0" % servers
        }
        assert 0 < await bench.redis.ttl(bench.keys.suspects) <= ENTRIES_TTL_S
    assert await bench.read(bench.peer, JOB + b"\t", OTHER) == NotedSuspects(
        "", [SuspectEntry(3, 0), SuspectEntry()]
    )


@pytest.mark.parametrize(
    ("raw", "recovered"),
    [
        (b'{"jid":"a"}\t', b'{"jid":"a"}\t'),
        (b'{"jid":"a"}\t\t', b'{"jid":"a"}\t\t'),
        (b'{"jid":"a"} ', b'{"jid":"a"} \t'),
        (b'{"jid":"a"}\n', b'{"jid":"a"}\n\t'),
        (b"[1]", b"[1]"),
        (b"no JSON", b"no JSON"),
        (b"", b""),
        (b"\t", b"\t"),
    ],
)
async def test_the_mark_stands_behind_bytes_that_may_be_an_object(
    bench: Bench, raw: bytes, recovered: bytes
) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), raw)
    await bench.end(await bench.take())
    assert await bench.waiting() == [recovered]
    marked = recovered.endswith(b"\t")
    [entry] = (await bench.read(bench.peer, recovered)).entries
    assert entry == SuspectEntry(int(marked), 0)


async def test_a_graceful_stop_counts_nothing(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    owner = await bench.take()
    await bench.runs(owner, JOB)
    assert await owner.give_back("q") == 1
    assert await owner.deregister(["q"])
    assert await bench.waiting() == [JOB]
    assert not await bench.redis.exists(bench.keys.suspects)


async def test_a_stop_that_leaves_jobs_charges_none(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    owner = await bench.take()
    await bench.runs(owner, JOB)
    assert not await owner.deregister(["q"])
    await bench.end(owner)
    assert (await bench.read(owner, JOB)) == NotedSuspects("", [SuspectEntry(1, 0)])


async def test_only_the_suspect_that_the_dead_server_ran_is_charged(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB, OTHER)
    for deaths in (1, 2, 3):
        owner = await bench.take(2)
        await bench.runs(owner, OTHER + b"\t")
        assert (await bench.read(owner)).running == field_of(OTHER)
        # In steps that are too small for all.
        assert await bench.end(owner, most=1) == 1
        assert await bench.end(owner, most=1) == 1
        assert await bench.end(owner, most=1) == 0
        assert await bench.read(owner, JOB, OTHER) == NotedSuspects(
            "", [SuspectEntry(deaths, 0), SuspectEntry(deaths, deaths)]
        )


async def test_a_suspect_that_was_settled_before_the_death_is_not_charged(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    owner = await bench.take()
    await bench.runs(owner, JOB)
    assert (await owner.exchange("q", [(JOB, DONE)], 0, NOW)).stale == []
    assert await bench.end(owner) == 0
    assert not await bench.redis.exists(bench.keys.suspects)


async def test_a_server_that_runs_a_suspect_no_more_charges_none(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    owner = await bench.take()
    await bench.runs(owner, JOB)
    await arun(bench.connected, suspects.run_none(bench.keys, owner.identity))
    await bench.end(owner)
    assert (await bench.read(owner, JOB)).entries == [SuspectEntry(1, 0)]


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (DONE, SuspectEntry()),
        (Outcome(Fate.RETRY, NOW + 9, b'{"jid":"a","retry_count":0}'), SuspectEntry()),
        (Outcome(Fate.SNOOZE, NOW + 9), SuspectEntry()),
        (Outcome(Fate.DEAD), SuspectEntry()),
        (Outcome(Fate.DISCARD), SuspectEntry()),
        (Outcome(Fate.CANCELLED), SuspectEntry()),
        (REQUEUE, SuspectEntry(1, 0)),
    ],
)
async def test_the_entry_goes_with_the_settlement(bench: Bench, outcome: Outcome, left: SuspectEntry) -> None:
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    await bench.end(await bench.take())
    owner, marked = await bench.take(), JOB + b"\t"
    # Not ours: it is another server's still.
    assert (await bench.peer.exchange("q", [(marked, deleting_entry(marked, DONE))], 0, NOW)).stale == [0]
    assert (await bench.read(owner, JOB)).entries == [SuspectEntry(1, 0)]
    found = await owner.exchange("q", [(marked, deleting_entry(marked, outcome))], 0, NOW)
    assert (found.stale, found.failed) == ([], ())
    assert (await bench.read(owner, JOB)).entries == [left]


async def test_a_key_of_another_type_stops_neither_recovery_nor_jobs(bench: Bench) -> None:
    await bench.redis.set(bench.keys.suspects, "no hash")
    await bench.redis.lpush(bench.keys.queue("q"), JOB)
    owner = await bench.take()
    await bench.runs(owner, JOB)
    assert await bench.read(owner, JOB) == NotedSuspects("", [SuspectEntry()])
    assert await bench.end(owner) == 1
    assert await bench.waiting() == [JOB]
    assert await bench.peer.deregister(["q"])
