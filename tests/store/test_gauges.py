"""The gauges of all servers over time: one entry a minute, of a bounded size, whoever writes it."""

from __future__ import annotations

import time

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.store.measures import gauges
from pyworkers.store.measures.gauges import MINUTE, TEN_MINUTES, GaugeEntry
from tests.helpers.records import raw_job, register
from tests.store.conftest import Run

NOON = 1_200_000_000.0


def entries(run_work: Run, keys: Keys) -> list[GaugeEntry]:
    found: list[GaugeEntry] = run_work(gauges.read(keys, 0.0, MINUTE))
    return found


def test_a_minute_has_the_jobs_of_all_servers_and_the_waits_of_queues(
    run_work: Run, db: redis.Redis, keys: Keys
) -> None:
    now = time.time()
    for identity, busy in (("a:1:x", 2), ("b:1:x", 0)):
        register(db, keys, identity, {"queues": ["mail"]}, beat=now, busy=99)
        run_work(gauges.note_busy(keys, identity, busy, 10))
    register(db, keys, "sidekiq:1:x", {"queues": ["ruby"], "concurrency": 5}, beat=now, busy=3, concurrency=5)
    register(db, keys, "silent:1:x", {"queues": ["ruby"]}, beat=now - 100, busy=7, concurrency=50)
    db.sadd(keys.queues, "mail", "empty", "odd", b"\xff", "queue:not")
    db.lpush(keys.queue("mail"), raw_job("j", enqueued_at=now - 50))
    db.lpush(keys.queue("bare"), raw_job("j", enqueued_at=now - 500))
    db.lpush(keys.queue("odd"), "no job")
    run_work(gauges.note(keys, ["bare"]))
    [entry] = entries(run_work, keys)
    assert (entry.busy, entry.concurrency, entry.left_out) == (5, 25, 0)
    assert list(entry.latencies_s) == ["bare", "mail"]
    assert 50 <= entry.latencies_s["mail"] < 60
    assert entry.at % 60 == 0 and now - 60 < entry.at <= time.time()


def test_an_absurd_heartbeat_of_a_stranger_counts_as_nothing(
    run_work: Run, db: redis.Redis, keys: Keys
) -> None:
    now = time.time()
    register(db, keys, "real:1:x", {}, beat=now, busy=3, concurrency=5)
    for number in ("1e300", "-7", "9" * 18, "inf", "x"):
        identity = f"stranger:{len(number)}:{number[0]}"
        register(db, keys, identity, {}, beat=now)
        db.hset(keys.process(identity), mapping={"busy": number, "concurrency": number})
    run_work(gauges.note_busy(keys, "noted:1:x", 10**18, 10**18))
    db.sadd(keys.processes, "noted:1:x")
    run_work(gauges.note(keys, []))
    [entry] = entries(run_work, keys)
    assert (entry.busy, entry.concurrency) == (3, 5)


def test_a_minute_is_noted_once(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON, 1, 2)))
    run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON, 5, 6)))
    run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON - 60, 5, 6)))
    assert entries(run_work, keys) == [GaugeEntry(NOON, 1, 2)]


def test_the_longest_waits_are_kept_of_very_many_queues(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    now = time.time()
    with db.pipeline(transaction=False) as pipe:
        for number in range(1, 1101):
            pipe.sadd(keys.queues, f"q{number:04}")
            pipe.lpush(keys.queue(f"q{number:04}"), raw_job("j", enqueued_at=now - number))
        pipe.execute()
    run_work(gauges.note(keys, []))
    [entry] = entries(run_work, keys)
    # The first thousand by name are read.
    assert list(entry.latencies_s) == [f"q{number:04}" for number in range(1000, 950, -1)]
    assert entry.left_out == 1050


def test_both_streams_have_a_bounded_size(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    for minute in range(150):
        run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON + 60 * minute, 1, 2)))
    for part in range(440):
        run_work(gauges.add(keys, TEN_MINUTES, GaugeEntry(NOON + 600 * part, 1, 2)))
    assert (db.xlen(keys.gauges(MINUTE)), db.xlen(keys.gauges(TEN_MINUTES))) == (120, 432)
    assert 7000 < db.ttl(keys.gauges(MINUTE)) <= 7200
    assert 259_000 < db.ttl(keys.gauges(TEN_MINUTES)) <= 259_200


def test_a_stream_with_an_entry_of_a_wrong_clock_begins_anew(
    run_work: Run, db: redis.Redis, keys: Keys
) -> None:
    for name in (f"{NOON * 2:.0f}000-0", f"{2**64 - 1}-0"):
        db.xadd(keys.gauges(MINUTE), {"v": "{}"}, id=name)
        run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON, 1, 2)))
        assert not db.exists(keys.gauges(MINUTE))
    run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON, 1, 2)))
    # An older one is refused alone.
    run_work(gauges.add(keys, MINUTE, GaugeEntry(NOON - 600, 3, 4)))
    assert db.xlen(keys.gauges(MINUTE)) == 1


def test_entries_of_other_programs_are_folded(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    for minute, queue in enumerate(("\\ud800", "\\u0000", "mail")):
        packed = f'{{"busy":1,"concurrency":2,"waits":{{"{queue}":5}},"left_out":0}}'
        db.xadd(keys.gauges(MINUTE), {"v": packed}, id=f"{NOON + 60 * minute:.0f}000-7")
    run_work(gauges.fold(keys, NOON + 600))
    [entry] = run_work(gauges.read(keys, NOON, TEN_MINUTES))
    assert set(entry.latencies_s) == {"\ud800", "\x00", "mail"}


def test_ten_minutes_have_the_mean_of_busy_and_the_highest_of_the_rest(run_work: Run, keys: Keys) -> None:
    for minute, waits in ((0, {"a": 5.0}), (9, {"a": 2.0, "b": 7.0}), (10, {"c": 1.0}), (19, {}), (20, {})):
        entry = GaugeEntry(NOON + 60 * minute, minute, 10 + minute, waits, left_out=minute)
        run_work(gauges.add(keys, MINUTE, entry))
    first = GaugeEntry(NOON, 4.5, 19, {"b": 7.0, "a": 5.0}, 9)
    second = GaugeEntry(NOON + 600, 14.5, 29, {"c": 1.0}, 19)
    run_work(gauges.fold(keys, NOON + 600))
    run_work(gauges.fold(keys, NOON + 1259))
    run_work(gauges.fold(keys, NOON + 1259))
    third = GaugeEntry(NOON + 1200, 20, 30, {}, 20)
    # The third ten minutes are not over.
    assert run_work(gauges.read(keys, NOON, TEN_MINUTES)) == [first, second, third]
    assert run_work(gauges.read(keys, NOON + 600, TEN_MINUTES)) == [second, third]


def test_what_others_have_written_is_left_out(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    for number, packed in enumerate(("", "[]", "{}", '{"busy":1,"concurrency":1,"waits":[],"left_out":0}')):
        db.xadd(keys.gauges(MINUTE), {"v": packed}, id=f"{number + 1}-0")
    db.xadd(keys.gauges(MINUTE), {"other": "field"}, id="10-0")
    waits = '{"a":1,"b":-1,"c":1e999,"d":"x"}'
    packed = f'{{"busy":1,"concurrency":1{"0" * 400},"waits":{waits},"left_out":0}}'
    db.xadd(keys.gauges(MINUTE), {"v": packed}, id="1000-0")
    db.xadd(keys.gauges(MINUTE), {"v": packed.replace("0" * 400, "")}, id="2000-0")
    assert entries(run_work, keys) == [GaugeEntry(2.0, 1, 1, {"a": 1.0})]
    db.set(keys.gauges(TEN_MINUTES), "of another type")
    assert run_work(gauges.read(keys, 0.0, TEN_MINUTES)) == [GaugeEntry(0.0, 1, 1, {"a": 1.0})]


def test_servers_without_jobs_are_an_entry_and_no_server_is_none(run_work: Run, keys: Keys) -> None:
    assert entries(run_work, keys) == []
    run_work(gauges.note(keys, []))
    [entry] = entries(run_work, keys)
    assert (entry.busy, entry.concurrency, entry.latencies_s) == (0, 0, {})
