"""Limits over all servers: turns of a rate, slots, the order of waiting jobs, the slots of dead servers."""

from __future__ import annotations

import math
import time

import pytest

from pyworkers.errors import StoreError
from pyworkers.protocol.limits import Ask, Limit, LimitStats, Want
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.store import scripts
from pyworkers.store.calls import arun
from pyworkers.store.flow import limits, limituses
from pyworkers.store.flow.limits import AskedJob, AskReply, Verdict
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Owner
from tests.helpers.replies import as_list

TEN = Want("stripe", 10, 110.0)
ONE = Want("once", 1, 60.0)
TWO = Want("erp", 2, 0.0)
GRANTED = AskReply(Verdict.GRANTED)
_TURN = """
local members = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for n = 1, #members, 2 do
  redis.call('ZADD', KEYS[1], string.format('%.6f', members[n + 1] - ARGV[1]), members[n])
end
"""


class Bench(RedisBench):
    """Servers that ask for jobs of one queue."""

    async def prepare(self) -> None:
        self.a = await self.server("a:1:a")
        self.b = await self.server("b:2:b")

    async def server(self, identity: str) -> Owner:
        owner = Owner(self.connection(), self.keys, identity)
        await owner.renew(30, ["q"])
        return owner

    async def fetch(self, jid: str, owner: Owner) -> bytes:
        """A server has fetched a new job."""
        raw = b'{"jid":"%s"}' % jid.encode()
        await self.redis.lpush(self.keys.inprogress("q", owner.identity), raw)
        return raw

    async def ask(self, jid: str, *wants: Want, owner: Owner | None = None, holder: str = "") -> AskReply:
        """A server asks for a job that it has fetched."""
        owner = owner or self.a
        raw = b'{"jid":"%s"}' % jid.encode()
        asked = AskedJob(Ask(jid, holder or f"of {jid}", wants), "q", raw)
        [answer] = await arun(self.redis, limits.ask(self.keys, owner.identity, [asked]))
        assert answer is not None
        return answer

    async def ask_all(self, jids: list[str], want: Want) -> list[tuple[str, AskReply]]:
        """A server asks for several jobs in one round trip."""
        asked = [
            AskedJob(Ask(jid, f"of {jid}", (want,)), "q", b'{"jid":"%s"}' % jid.encode()) for jid in jids
        ]
        answers = await arun(self.redis, limits.ask(self.keys, self.a.identity, asked))
        return [(jid, answer) for jid, answer in zip(jids, answers, strict=True) if answer]

    async def run(self, jid: str, *wants: Want, owner: Owner | None = None) -> AskReply:
        """A server fetches a job, and asks for it."""
        await self.fetch(jid, owner or self.a)
        return await self.ask(jid, *wants, owner=owner)

    async def end(self, jid: str, *wants: Want, owner: Owner | None = None) -> None:
        """A job that ran is done."""
        owner = owner or self.a
        effects = limits.frees(owner.identity, Ask(jid, f"of {jid}", wants))
        raw = b'{"jid":"%s"}' % jid.encode()
        found = await owner.exchange("q", [(raw, DONE.with_effects(*effects))], 0, time.time())
        assert (found.stale, found.failed) == ([], ())

    async def sets(self) -> list[str]:
        names = as_list(await self.redis.keys(f"{self.keys.own('limit')}*"))
        return [self.keys.schedule, *(name.decode() for name in names if name != self.keys.limits.encode())]

    async def turn_clock(self, seconds: float) -> None:
        """Let time pass: what has happened was so much earlier, what is to happen is so much nearer."""
        for key in await self.sets():
            await self.redis.eval(_TURN, 1, key, seconds)

    async def promote(self) -> list[bytes]:
        """The jobs of schedule that are due are fetched again."""
        due = as_list(await self.redis.zrange(self.keys.schedule, "-inf", time.time(), byscore=True))
        if due:
            await self.redis.zrem(self.keys.schedule, *due)
            await self.redis.lpush(self.keys.inprogress("q", self.a.identity), *due)
        return due

    async def scheduled(self) -> list[bytes]:
        return as_list(await self.redis.zrange(self.keys.schedule, 0, -1))

    async def uses(self) -> list[LimitStats]:
        return await arun(self.redis, limituses.uses(self.keys))


bench = bench_fixture(Bench)


# --- rates ----------------------------------------------------------------------------------------------


async def test_a_rate_lets_so_many_start_and_gives_the_others_turns_in_a_row(bench: Bench) -> None:
    assert [await bench.run(f"j{n}", TEN, owner=bench.a if n % 2 else bench.b) for n in range(10)] == (
        [GRANTED] * 10
    )
    begun = time.time()
    later = [await bench.run(f"k{n}", TEN) for n in range(25)]
    assert {answer.verdict for answer in later} == {Verdict.LIMITED}
    turns = [answer.at for answer in later]
    assert turns == sorted(turns)
    for n, at in enumerate(turns):
        # One window after the first start, then one after the other with even gaps.
        assert begun + 110 + n * 11 - 60 < at < time.time() + 110 + n * 11.002 + 1
    assert all(turns[n + 10] - turns[n] > 109.9 for n in range(15))
    assert len(await bench.scheduled()) == 25
    assert await bench.a.inprogress("q") == [b'{"jid":"j%d"}' % n for n in (9, 7, 5, 3, 1)]


async def test_a_job_that_comes_at_its_turn_starts_and_a_new_one_waits_behind_all(bench: Bench) -> None:
    await bench.run("first", ONE)
    second, third = [await bench.run(jid, ONE) for jid in ("second", "third")]
    assert third.at - second.at == pytest.approx(60, abs=0.03)
    await bench.turn_clock(60.1)
    assert await bench.promote() == [b'{"jid":"second"}']
    new = await bench.run("new", ONE)
    assert (new.verdict, await bench.ask("second", ONE)) == (Verdict.LIMITED, GRANTED)
    assert new.at - time.time() == pytest.approx(120, abs=30)
    assert await bench.scheduled() == [b'{"jid":"third"}', b'{"jid":"new"}']


async def test_a_thousand_jobs_of_one_rate_ask_twice_each_at_most(bench: Bench) -> None:
    want, asks, ended = Want("s", 50, 1.1), 0, 0
    held: list[str] = []
    due = [f"j{n}" for n in range(1000)]
    for jid in due:
        await bench.fetch(jid, bench.a)
    while ended < 1000:
        # An ask of a job that stayed in the list costs no start.
        asks += len(due)
        due, held = [*held, *due], []
        for start in range(0, len(due), 50):
            began = time.time()
            for jid, answer in await bench.ask_all(due[start : start + 50], want):
                ended += answer == GRANTED
                if answer.verdict is Verdict.WAIT:
                    held.append(jid)
            # The speed of this machine is not what the test is about.
            await bench.turn_clock(began - time.time())
        await bench.turn_clock(0.11)
        due = [raw.decode().split('"')[3] for raw in await bench.promote()]
    assert asks <= 2000


async def test_a_window_begins_when_the_start_is_noted(bench: Bench) -> None:
    raw = await bench.fetch("a", bench.a)
    assert await bench.ask("a", ONE) == GRANTED
    await bench.turn_clock(30)
    noted = Outcome(Fate.NOTE, effects=limits.starts(bench.a.identity, Ask("a", "of a", (ONE,))))
    assert (await bench.a.exchange("q", [(raw, noted)], 0, time.time())).failed == ()
    [use] = await bench.uses()
    assert use.used == 1
    assert (await bench.run("b", ONE)).at - time.time() == pytest.approx(60, abs=10)
    assert 60 < await bench.redis.ttl(bench.keys.limit("once")) <= 121


async def test_a_turn_that_is_near_is_waited_for_where_the_job_is(bench: Bench) -> None:
    want = Want("s", 1, 0.3)
    for jid in ("a", "b"):
        await bench.fetch(jid, bench.a)
    # In one round trip: a moment later the turn would have come.
    [(_, first), (_, answer)] = await bench.ask_all(["a", "b"], want)
    assert (first, answer.verdict) == (GRANTED, Verdict.WAIT)
    assert 0 < answer.after_s <= 0.4
    assert await bench.scheduled() == []
    await bench.turn_clock(0.4)
    assert await bench.ask("b", want) == GRANTED


async def test_the_turn_of_a_deleted_job_does_not_stop_the_others(bench: Bench) -> None:
    for jid in ("a", "deleted", "c"):
        await bench.run(jid, ONE)
    await bench.redis.zrem(bench.keys.schedule, b'{"jid":"deleted"}')
    await bench.turn_clock(120.2)
    assert await bench.promote() == [b'{"jid":"c"}']
    assert await bench.ask("c", ONE) == GRANTED


# --- slots ----------------------------------------------------------------------------------------------


async def test_slots_are_for_so_many_jobs_of_all_servers(bench: Bench) -> None:
    assert await bench.run("a", TWO) == GRANTED
    assert await bench.run("b", TWO, owner=bench.b) == GRANTED
    assert (await bench.run("c", TWO)).verdict is Verdict.LIMITED
    assert await bench.uses() == [LimitStats("erp", 2, 0.0, 2, 1)]


async def test_the_end_of_a_job_calls_the_one_that_waits_longest_to_the_head_of_its_queue(
    bench: Bench,
) -> None:
    for jid in ("a", "b", "c", "d"):
        await bench.run(jid, TWO)
    await bench.redis.lpush(bench.keys.queue("q"), b"other")
    await bench.end("a", TWO)
    assert await bench.waiting() == [b'{"jid":"c"}', b"other"]
    assert await bench.scheduled() == [b'{"jid":"d"}']
    # The slot is the called job's.
    assert (await bench.run("new", TWO)).verdict is Verdict.LIMITED
    [taken] = (await bench.b.exchange("q", [], 1, time.time())).jobs
    assert taken == b'{"jid":"c"}'
    assert await bench.ask("c", TWO, owner=bench.b) == GRANTED
    await bench.end("b", TWO)
    assert (await bench.waiting())[0] == b'{"jid":"d"}'


async def test_a_called_job_that_does_not_come_loses_its_slot_to_one_that_does(bench: Bench) -> None:
    for jid in ("a", "b", "c"):
        await bench.run(jid, TWO)
    await bench.end("a", TWO)
    await bench.turn_clock(1.5)
    assert await bench.run("new", TWO) == GRANTED
    [taken] = (await bench.a.exchange("q", [], 1, time.time())).jobs
    assert (taken, (await bench.ask("c", TWO)).verdict) == (b'{"jid":"c"}', Verdict.LIMITED)


async def test_a_deleted_job_that_waits_is_skipped(bench: Bench) -> None:
    for jid in ("a", "b", "c", "d"):
        await bench.run(jid, TWO)
    await bench.redis.zrem(bench.keys.schedule, b'{"jid":"c"}')
    await bench.end("a", TWO)
    assert await bench.waiting() == [b'{"jid":"d"}']


async def test_the_slot_of_a_called_job_that_is_deleted_is_passed_on_by_a_sweep(bench: Bench) -> None:
    for jid in ("a", "b", "c", "d"):
        await bench.run(jid, TWO)
    await bench.end("a", TWO)
    await bench.redis.lrem(bench.keys.queue("q"), 1, '{"jid":"c"}')
    for passed_s, called in ((50, []), (20, [b'{"jid":"d"}'])):
        await bench.turn_clock(passed_s)
        await arun(bench.redis, limits.sweep(bench.keys))
        assert await bench.waiting() == called


async def test_a_called_job_that_another_limit_puts_off_passes_its_call_on(bench: Bench) -> None:
    for jid in ("a", "b"):
        await bench.run(jid, TWO)
    for jid in ("c", "d"):
        assert (await bench.run(jid, TWO, ONE)).verdict is Verdict.LIMITED
    await bench.run("e", TWO)
    await bench.run("other", ONE)
    await bench.end("a", TWO)
    for jid, called in (("c", "d"), ("d", "e")):
        assert await bench.waiting() == [b'{"jid":"%s"}' % jid.encode()]
        await bench.a.exchange("q", [], 1, time.time())
        assert (await bench.ask(jid, TWO, ONE)).verdict is Verdict.LIMITED
        assert await bench.waiting() == [b'{"jid":"%s"}' % called.encode()]


async def test_a_job_that_was_called_in_the_same_microsecond_keeps_its_call(bench: Bench) -> None:
    text = scripts.load("limits/ask").text
    own = text.index("-- A job that is granted has started by then")
    text = text[:own] + "redis.call('ZADD', KEYS[6], clock(), 'q other')\n" + text[own:]
    for n in range(20):
        raw = await bench.fetch(f"j{n}", bench.a)
        full, called = bench.keys.limit("once"), bench.keys.limit_waiting("erp")
        await bench.redis.zadd(full, {"holder": time.time()})
        await bench.redis.zadd(called, {f"q j{n}": time.time() - 0.1})
        keys = [bench.keys.inprogress("q", bench.a.identity), bench.keys.schedule, bench.keys.limits]
        keys += [bench.keys.queues, bench.keys.limit("erp"), called, full, bench.keys.limit_waiting("once")]
        args: list[str | bytes | int] = [
            raw,
            b"",
            f"q j{n}",
            "a:1:a|of j",
            "0.5",
            "erp",
            2,
            "0.0",
            "once",
            1,
            "0.0",
            bench.keys.namespace,
        ]
        [verdict, _] = as_list(await bench.redis.eval(text, len(keys), *keys, *args))
        assert verdict == b"limited"
        assert await bench.redis.zrange(called, 0, -1) == [b"q other"]


async def test_an_end_that_is_sent_twice_calls_one_job(bench: Bench) -> None:
    for jid in ("a", "b", "c", "d"):
        await bench.run(jid, TWO)
    effects = limits.frees(bench.a.identity, Ask("a", "of a", (TWO,)))
    settlement = (b'{"jid":"a"}', DONE.with_effects(*effects))
    first = await bench.a.exchange("q", [settlement], 0, time.time())
    again = await bench.a.exchange("q", [settlement], 0, time.time())
    assert (first.stale, again.stale) == ([], [0])
    assert await bench.waiting() == [b'{"jid":"c"}']


async def test_a_failed_job_frees_its_slot(bench: Bench) -> None:
    for jid in ("a", "b", "c"):
        await bench.run(jid, TWO)
    effects = limits.frees(bench.a.identity, Ask("a", "of a", (TWO,)))
    outcome = Outcome(Fate.RETRY, time.time() + 60, effects=effects)
    await bench.a.exchange("q", [(b'{"jid":"a"}', outcome)], 0, time.time())
    assert await bench.waiting() == [b'{"jid":"c"}']


# --- several limits, and answers that are lost ----------------------------------------------------------


async def test_all_limits_or_none(bench: Bench) -> None:
    assert await bench.run("a", ONE, TWO) == GRANTED
    assert (await bench.run("b", ONE, TWO)).verdict is Verdict.LIMITED
    assert await bench.uses() == [LimitStats("erp", 2, 0.0, 1, 0), LimitStats("once", 1, 59.996, 1, 1)]


async def test_an_ask_whose_answer_was_lost_is_answered_again(bench: Bench) -> None:
    assert await bench.run("a", ONE, TWO) == GRANTED
    assert await bench.ask("a", ONE, TWO) == GRANTED
    assert (await bench.run("b", ONE)).verdict is Verdict.LIMITED
    assert await bench.ask("b", ONE) == AskReply(Verdict.GONE)
    assert await bench.uses() == [LimitStats("erp", 2, 0.0, 1, 0), LimitStats("once", 1, 59.996, 1, 1)]
    assert len(await bench.scheduled()) == 1


async def test_a_job_that_a_peer_has_recovered_takes_no_slot(bench: Bench) -> None:
    assert await bench.ask("unknown", TWO) == AskReply(Verdict.GONE)
    assert await bench.uses() == []


async def test_a_key_of_a_wrong_type_puts_the_job_off_and_says_so(bench: Bench) -> None:
    await bench.redis.set(bench.keys.limit("erp"), "text")
    answer = await bench.run("a", TWO)
    assert (answer.verdict, answer.key) == (Verdict.BROKEN, bench.keys.limit("erp"))
    assert answer.at - time.time() == pytest.approx(60, abs=30)
    assert await bench.scheduled() == [b'{"jid":"a"}']


@pytest.mark.parametrize("want", [ONE, Want("erp", 1, 0.0)])
async def test_odd_scores_put_no_job_off_for_ever(bench: Bench, want: Want) -> None:
    await bench.redis.zadd(bench.keys.limit(want.key), {"odd": math.inf, "x": math.inf})
    await bench.redis.zadd(bench.keys.limit_waiting(want.key), {"odd": math.inf, "none": -math.inf})
    answer = await bench.run("1", want)
    assert answer.verdict is Verdict.LIMITED
    assert answer.at < time.time() + 4000 + 120
    # What another program writes into the list of limits is left out.
    await bench.redis.hset(bench.keys.limits, mapping={"odd": "5 abc", "none": "\0"})
    await bench.redis.delete(bench.keys.limit(want.key), bench.keys.limit_waiting(want.key))
    await arun(bench.redis, limits.sweep(bench.keys))
    assert await bench.run("2", want) == GRANTED


async def test_a_schedule_of_a_wrong_type_loses_no_job(bench: Bench) -> None:
    await bench.redis.set(bench.keys.schedule, "text")
    raw = await bench.fetch("a", bench.a)
    with pytest.raises(StoreError, match="is not a zset"):
        await bench.ask("a", TWO)
    assert await bench.a.inprogress("q") == [raw]


async def test_the_keys_may_vanish(bench: Bench) -> None:
    for jid in ("a", "b", "c"):
        await bench.run(jid, TWO)
    await bench.redis.delete(*(await bench.sets())[1:], bench.keys.limits)
    await bench.end("a", TWO)
    assert await bench.run("d", TWO) == GRANTED
    # It comes back by itself.
    assert await bench.scheduled() == [b'{"jid":"c"}']


# --- dead servers, and reset ----------------------------------------------------------------------------


async def test_the_slots_of_a_dead_server_are_freed_and_the_next_jobs_called(bench: Bench) -> None:
    for jid in ("a", "b", "c"):
        await bench.run(jid, TWO)
    assert await arun(bench.redis, limits.sweep(bench.keys)) == (1, 0)
    await bench.redis.delete(bench.keys.lease(bench.a.identity))
    # It may still restore its lease.
    assert await arun(bench.redis, limits.sweep(bench.keys)) == (1, 0)
    await bench.b.recover(bench.a.identity, ["q"], 100)
    assert await arun(bench.redis, limits.sweep(bench.keys)) == (1, 2)
    assert (await bench.waiting())[0] == b'{"jid":"c"}'
    assert await bench.run("d", TWO, owner=bench.b) == GRANTED


async def test_a_sweep_forgets_unused_values_of_by(bench: Bench) -> None:
    tenants = Limit("tenant", concurrency=1, by=lambda tenant: tenant)
    wants = [tenants.want([n]) for n in range(3)]
    for n, want in enumerate(wants):
        await bench.run(f"j{n}", want)
    assert [use.key for use in await bench.uses()] == ["tenant:0", "tenant:1", "tenant:2"]
    await bench.end("j1", wants[1])
    await arun(bench.redis, limits.sweep(bench.keys))
    assert [use.key for use in await bench.uses()] == ["tenant:0", "tenant:2"]


async def test_reset_frees_all_slots_and_forgets_all_starts(bench: Bench) -> None:
    for jid in ("a", "b", "c"):
        await bench.run(jid, TWO)
    await bench.run("d", ONE)
    assert await arun(bench.redis, limits.reset(bench.keys, "erp")) == 1
    assert (await bench.waiting(), await bench.scheduled()) == ([b'{"jid":"c"}'], [])
    assert await bench.run("e", TWO) == GRANTED
    assert (await bench.run("f", ONE)).verdict is Verdict.LIMITED
    await arun(bench.redis, limits.reset(bench.keys, "once"))
    assert await bench.run("g", ONE) == GRANTED
    assert await arun(bench.redis, limits.reset(bench.keys, "unknown")) == 0
