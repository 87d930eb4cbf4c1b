"""Pages, searches, and jobs that are found again: of any bytes, while the list moves, never a whole list."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis

from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.pages import read_page, read_rows
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.api.browse.search import Sought, position_of, read_matches, read_stretch
from pyworkers.errors import StoreError
from pyworkers.protocol.extract import LARGE_BYTES, token
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse.parts import Position, read_part
from pyworkers.store.calls import Steps
from tests.helpers.records import raw_job
from tests.store.conftest import Run

NOW = 1_700_000_000.0
QUEUE = Place.of_queue("q")
HOSTILE = [
    b"",
    b"not JSON",
    b"[]",
    b"{}",
    b'{"jid": 7, "class": null, "args": {"a": 1}}',
    b"\xff\xfe\x00\x1b[31m",
    b'{"jid": "\\ud800", "class": "<b>&"}',
    b"[" * 3000,
    b'{"class": "' + b"A" * 100_000 + b'"}',
    b"\xff" * 20_000,
    b"{" * 20_000,
    b'{"class":"A",' + b'"jid":"1","class":' * 2000,
]


def fill(db: redis.Redis, keys: Keys, number: int) -> None:
    """Jobs 0… in the queue: 0 is popped next."""
    db.lpush(keys.queue("q"), *(raw_job(str(jid)) for jid in range(number)))


def test_a_page_of_a_queue_begins_with_the_job_that_is_popped_next(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    fill(db, keys, 120)
    page = run_work(read_page(keys, QUEUE, 50))
    assert [row.job.jid for row in page.rows] == [str(jid) for jid in range(50, 100)]
    assert (page.first, page.last, page.total) == (50, 100, 120)
    assert page.rows[0].as_dict()["index"] == 50


def test_a_page_behind_the_end_is_the_last_one(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 120)
    assert [row.index for row in run_work(read_page(keys, QUEUE, 900)).rows] == list(range(100, 120))
    assert run_work(read_page(keys, Place.of_queue("none"), 900)).rows == ()


@pytest.mark.parametrize(("place", "first"), [(SCHEDULED, "0"), (RETRIES, "0"), (DEAD, "9")])
def test_a_page_of_a_set(run_work: Run, keys: Keys, db: redis.Redis, place: Place, first: str) -> None:
    db.zadd(place.key(keys), {raw_job(str(jid)): NOW + jid for jid in range(10)})
    page = run_work(read_page(keys, place, 0, 3))
    assert page.rows[0].job.jid == first
    assert page.rows[0].score == NOW + int(first)
    assert len(page.rows) == 3
    assert page.total == 10


def test_a_key_of_another_type(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.set(keys.queue("q"), "text")
    with pytest.raises(StoreError, match="another type"):
        run_work(read_page(keys, QUEUE))


def test_large_jobs_are_cut_and_found_again_whole(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    raws = [
        json.dumps(
            {"class": "Big", "args": ["x" * 1_000_000, n], "jid": f"j{n}", "created_at": 1.5, "queue": "q"}
        ).encode()
        for n in range(3)
    ]
    db.lpush(keys.queue("q"), *raws)
    page = run_work(read_page(keys, QUEUE))
    assert [row.job.jid for row in page.rows] == ["j0", "j1", "j2"]
    assert [row.length for row in page.rows] == [len(raw) for raw in raws]
    assert {(row.job.job_class, row.job.cut, len(row.job.args)) for row in page.rows} == {("Big", True, 0)}
    again = run_work(read_rows(keys, QUEUE, [row.at for row in page.rows]))
    assert [row.job.raw for row in again] == raws


def test_any_bytes_make_a_row(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), *reversed(HOSTILE))
    page = run_work(read_page(keys, QUEUE))
    assert [row.length for row in page.rows] == [len(raw) for raw in HOSTILE]
    json.dumps(page.as_dict())
    again = run_work(read_rows(keys, QUEUE, [row.at for row in page.rows]))
    assert [row.job.raw for row in again] == HOSTILE


@pytest.mark.parametrize("size", [0, 1, LARGE_BYTES, LARGE_BYTES + 1, 100_001])
def test_python_and_lua_make_the_same_token(run_work: Run, keys: Keys, db: redis.Redis, size: int) -> None:
    raw = bytes(place * 7 % 251 for place in range(size))
    db.lpush(keys.queue("q"), raw)
    [piece] = run_work(read_part(keys.queue("q"), Position(), 5)).pieces
    assert piece.token == token(raw)


def test_a_job_is_found_again_after_others_have_come_and_gone(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    fill(db, keys, 3000)
    [row] = run_work(read_page(keys, QUEUE, 2000, 1)).rows
    db.rpop(keys.queue("q"), 1500)
    [again] = run_work(read_rows(keys, QUEUE, [row.at]))
    assert (again.job.jid, again.index) == ("2000", 500)
    db.rpop(keys.queue("q"), 501)
    assert run_work(read_rows(keys, QUEUE, [row.at])) == [None]


def test_a_job_of_a_set_is_found_again_by_its_score(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {raw_job(str(jid)): NOW + jid for jid in range(100)})
    [row] = run_work(read_page(keys, RETRIES, 70, 1)).rows
    db.zremrangebyrank(keys.retry, 0, 60)
    [again] = run_work(read_rows(keys, RETRIES, [row.at]))
    assert again.job.jid == "70"


@pytest.mark.parametrize("at", ["", "x", "1", "1_", "-1_aa_", "1_aa_nan", "1_aa_1.1.1", "9" * 99, "1_zz_2"])
def test_a_text_that_names_no_job(run_work: Run, keys: Keys, at: str) -> None:
    assert run_work(read_rows(keys, QUEUE, [at])) == [None]
    assert position_of(at) == Position()


def sought(place: Place, **conditions: object) -> Sought:
    return Sought(place, Filter.of(conditions), NOW)


def test_a_search_finds_what_its_filter_selects(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 2500)
    db.lpush(keys.queue("q"), raw_job("late", **{"class": "Mail::Send"}))
    found = run_work(read_matches(keys, sought(QUEUE, job_class="Mail::*"), Position(), budget_s=60))
    assert [row.job.jid for row in found.rows] == ["late"]
    assert (found.looked_at, found.total, found.cursor) == (2501, 2501, "")


def test_a_search_goes_on_from_its_cursor(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 2500)
    seen: list[str] = []
    cursor, parts = "", 0
    while cursor or not parts:
        part = run_work(read_matches(keys, sought(QUEUE, text="1"), position_of(cursor), budget_s=0))
        seen += [row.job.jid for row in part.rows]
        assert len(part.rows) <= 50
        cursor, parts = part.cursor, parts + 1
    assert seen == [str(jid) for jid in range(2500)]


def moves() -> dict[str, Callable[[redis.Redis, Keys], object]]:
    return {
        "popped": lambda db, keys: db.rpop(keys.queue("q"), 200),
        "pushed": lambda db, keys: db.lpush(keys.queue("q"), *(raw_job(f"new{n}") for n in range(700))),
        "all popped": lambda db, keys: db.rpop(keys.queue("q"), 1200),
    }


@pytest.mark.parametrize("move", moves())
def test_a_search_misses_no_job_of_a_moving_queue(
    run_work: Run, keys: Keys, db: redis.Redis, move: str
) -> None:
    fill(db, keys, 3000)
    first = run_work(read_stretch(keys, sought(QUEUE), Position()))
    assert first.looked_at == 250
    moves()[move](db, keys)
    assert first.after is not None
    rest, after = [], first.after
    while after is not None:
        part = run_work(read_stretch(keys, sought(QUEUE), after))
        rest += [row.job.jid for row in part.rows]
        after = part.after
    begin = 1200 if move == "all popped" else 250
    assert [jid for jid in rest if not jid.startswith("new")] == [str(jid) for jid in range(begin, 3000)]


def test_a_search_of_a_set_goes_on_by_score(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job(str(jid)): NOW + jid for jid in range(5000)})
    first = run_work(read_stretch(keys, sought(SCHEDULED), Position()))
    db.zremrangebyrank(keys.schedule, 0, 3499)
    assert first.after is not None
    second = run_work(read_stretch(keys, sought(SCHEDULED), first.after))
    assert second.rows[0].job.jid == "3500"


def test_a_large_job_is_compared_whole(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    raw = json.dumps({"class": "Big", "args": ["x" * 50_000, "needle", "y" * 50_000], "jid": "1"}).encode()
    db.lpush(keys.queue("q"), raw, raw_job("2"))
    found = run_work(read_matches(keys, sought(QUEUE, text="Needle"), Position()))
    assert [row.job.jid for row in found.rows] == ["1"]


SECRET = {
    "class": "A",
    "args": [{"token": 'hunter2 "jid":"hunter2" \\"class\\":\\"hunter2'}],
    "error_message": "x",
}


@pytest.mark.parametrize("condition", ["job_class", "jid", "queue", "tag", "error", "text"])
def test_how_far_a_search_comes_shows_no_hidden_value(
    run_work: Run, keys: Keys, db: redis.Redis, condition: str
) -> None:
    db.lpush(keys.queue("q"), *(json.dumps(SECRET | {"jid": str(jid)}) for jid in range(600)))

    def looked_at(text: str) -> int:
        wanted = Sought(QUEUE, Filter.of({condition: text}), NOW, ("token",))
        found: int = run_work(read_stretch(keys, wanted, Position())).looked_at
        return found

    assert looked_at("hunter2") == looked_at("falcon7")


@pytest.mark.parametrize(
    ("raw", "conditions"),
    [
        (b'{"jid" :\n "1", "class": "A"}', {"jid": "1"}),
        (b'{"jid":71,"class":null}', {"jid": "71"}),
        (b'{"class":["A","B"]}', {"job_class": '["A","B"]'}),
        (b'{"args":["class"],"class":"a\\\\\\"b::Send"}', {"job_class": "*::Send"}),
        (b'{"class":"Sidekiq::ActiveJob::Wrapper","args":[{"job_class":"Send"}]}', {"job_class": "Send"}),
        (b'{"args":[' + b'{"jid":1},' * 200 + b'1],"class":"A","jid":"8"}', {"jid": "8"}),
        (b'{"class":"A","display_class":"Send"}', {"job_class": "Send"}),
        (b'{"class":"A","error_class":"E","error_message":"\\"no\\" Answer"}', {"error": 'e: "no" answer'}),
        (b'{"queue":"low","class":"A","tags":["vip"]}', {"queue": "low", "tag": "vip"}),
    ],
)
@pytest.mark.parametrize("mask", [(), ("token",)])
def test_a_search_finds_each_form_of_a_member(
    run_work: Run,
    keys: Keys,
    db: redis.Redis,
    raw: bytes,
    conditions: dict[str, str],
    mask: tuple[str, ...],
) -> None:
    db.lpush(keys.queue("q"), raw, raw_job("2"))
    wanted = Sought(QUEUE, Filter.of(conditions), NOW, mask)
    assert [row.job.raw for row in run_work(read_matches(keys, wanted, Position())).rows] == [raw]


def test_no_read_grows_with_the_queue(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    """The ranges that Redis is asked for: a page reads its rows, a search some thousands."""
    fill(db, keys, 20_000)
    works: list[tuple[Steps[object], int]] = [
        (read_page(keys, QUEUE, 10_000), 50),
        (read_stretch(keys, sought(QUEUE, jid="none"), Position(10_000)), 5000),
    ]
    for work, most in works:
        ranges, _ = ranges_of(db, keys.queue("q"), partial(run_work, work))
        assert 0 < sum(ranges) <= most


def ranges_of(db: redis.Redis, key: str, run: Callable[[], Any]) -> tuple[list[int], Any]:
    """The lengths of the ranges of a key that a run asks Redis for, and its result."""
    with db.monitor() as monitor:
        result = run()
        db.echo("end")
        ranges: list[int] = []
        for about in monitor.listen():
            words = about["command"].split()
            if words[0] == "ECHO":
                return ranges, result
            if words[0] in ("LRANGE", "ZRANGE") and words[1] == key:
                ranges.append(abs(int(words[3]) - int(words[2])) + 1)
    raise AssertionError("the monitor has ended")


def test_a_search_of_a_set_goes_on_without_a_look_at_jobs_of_other_scores(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    """The job that was read last is gone, as after each part of a task that deletes."""
    db.zadd(keys.retry, {raw_job(str(jid)): NOW + jid // 3 for jid in range(6000)})
    first = run_work(read_stretch(keys, sought(RETRIES), Position(3000)))
    assert first.after is not None
    assert first.rows[-1].job.jid == "3249"
    db.zrem(keys.retry, *(row.job.raw for row in first.rows))
    ranges, second = ranges_of(
        db, keys.retry, lambda: run_work(read_stretch(keys, sought(RETRIES), first.after))
    )
    assert second.rows[0].job.jid == "3250"
    assert sum(ranges) < 2 * 250


def test_a_search_ends_a_part_after_a_megabyte(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(raw_job(str(jid), args=["x" * 1000]) for jid in range(2000)))
    part = run_work(read_stretch(keys, sought(QUEUE, jid="none"), Position()))
    assert 500 < part.looked_at < 1050
