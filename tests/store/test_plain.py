"""Reads by commands return what the scripts return, for users who may not send scripts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.extract import token
from pyworkers.protocol.keys import Keys
from pyworkers.store import plain
from pyworkers.store.admin import Admin
from pyworkers.store.browse.parts import Named, Position, find_again, read_part
from pyworkers.store.calls import Request, Steps
from pyworkers.store.measures.look import look
from pyworkers.store.sets import MembersByScore
from tests.helpers.records import raw_job

Run = Callable[[Any], Any]


@pytest.fixture
def filled(db: redis.Redis, keys: Keys) -> list[str]:
    """A queue and a set with small and large jobs, some of one score."""
    rng = random.Random(7)
    for number in range(400):
        size = rng.choice([10, 300, 20_000]) if number % 40 == 0 else 10
        raw = raw_job(f"j{number}", **{"class": "Add", "args": ["ab" * size], "enqueued_at": number + 0.25})
        db.lpush(keys.queue("q"), raw)
        db.zadd(keys.retry, {raw: number // 3 + 0.5})
    return [keys.queue("q"), keys.retry]


@pytest.fixture
def both(
    one_redis_url: str, redis_url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs steps twice, with and without scripts, and returns the result if it is the same."""
    admin = Admin(RedisConfig(redis_url, namespace))

    def instead(_script: Request[Any], steps: Callable[[], Steps[Any]]) -> Steps[Any]:
        return (yield from steps())

    def run(steps: Callable[[], Steps[Any]]) -> Any:
        expected = admin.run(steps())
        with monkeypatch.context() as patch:
            patch.setattr(plain, "or_plain", instead)
            assert admin.run(steps()) == expected
        return expected

    yield run


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("containing", [(), ("=:j39",), ("~:abab",)])
def test_parts(both: Run, filled: list[str], descending: bool, containing: tuple[str, ...]) -> None:
    for key in [*filled, "nothing"]:
        position, seen = Position(), 0
        for _ in range(6):
            part = both(
                lambda key=key, position=position: read_part(
                    key, position, 90, descending=descending, containing=containing, most=50
                )
            )
            seen += len(part.pieces)
            position = part.after
            again = [Named(piece.token, max(0, piece.place - 3), piece.score) for piece in part.pieces[::9]]
            found = both(lambda key=key, again=again: find_again(key, again, descending=descending))
            assert None not in found
        assert (seen > 0) == (key != "nothing")
        # A job that is gone, between others.
        gone = both(lambda key=key: find_again(key, [Named("0" * 20, 5)], descending=descending))
        assert gone == [None]
        moved = Position(100, "0" * 20, "40.5" if "retry" in key else "")
        both(lambda key=key, moved=moved: read_part(key, moved, 5, descending=descending))


@pytest.mark.parametrize("descending", [False, True])
def test_a_job_among_large_ones_is_found_from_its_place(
    both: Run, db: redis.Redis, keys: Keys, descending: bool
) -> None:
    """A search from far before it would end by its bytes."""
    key, numbers = keys.queue("q"), range(390)
    raws = [raw_job(f"j{number}", args=["x" * 100_000]) for number in numbers]
    push, take = (db.rpush, db.lpop) if descending else (db.lpush, db.rpop)
    for raw in raws:
        push(key, raw)
    take(key)
    begin, named = Position(381, token(raws[380]), ""), Named(token(raws[380]), 380)
    part = both(lambda: read_part(key, begin, 3, descending=descending))
    assert [piece.place for piece in part.pieces] == [380, 381, 382]
    [found] = both(lambda: find_again(key, [named], descending=descending))
    assert found is not None and (found.raw, found.place) == (raws[380], 379)
    # One that is gone: from the earliest job looked at.
    [piece] = both(lambda: read_part(key, Position(381, "0" * 20, ""), 1, descending=descending)).pieces
    assert 300 < piece.place < 381


@pytest.mark.parametrize("descending", [False, True])
def test_sets(both: Run, filled: list[str], db: redis.Redis, descending: bool) -> None:
    assert len(both(lambda: MembersByScore(filled[1], descending=descending, page=70).rest())) == 400

    def after_one_that_is_gone() -> Steps[list[Any]]:
        pages = MembersByScore(filled[1], descending=descending, page=5)
        pages._last = [b"40.5", b"{"]
        pages._end = (-1.0 if descending else 1e9), b""
        return (yield from pages.next_page())

    assert len(both(after_one_that_is_gone)) == 5


def test_looks(both: Run, filled: list[str], keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.ordered("q"), "identity", "a:1:b")
    reads = [
        (key, kind)
        for key in [*filled, keys.ordered("q"), "nothing"]
        for kind in ("length", "since", "active", "head")
    ]
    found = both(lambda: look(reads))
    assert found[:2] == [400, b"0.25"] and b"a:1:b" in found
