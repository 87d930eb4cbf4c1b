"""The lists of finished jobs against real servers: about the last ones, none older, read in one order."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from pyworkers.api.finished import FinishedFilter, FinishedSet, read_finished
from pyworkers.api.target import Admin
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.effects import KeepFinished
from pyworkers.protocol.flow.finished import FinishedFacts, entry
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import DONE
from tests.store.test_effects import Bench, bench

__all__ = ["bench"]


def kept(keep: Keep, number: int) -> KeepFinished:
    data = {"class": "Add", "jid": f"j{number}", "args": [number], "queue": "q"}
    return entry(keep, FinishedFacts("done", 1.0 + number), data, json.dumps(data).encode(), "q")


async def test_a_list_has_about_the_last_and_none_older(bench: Bench) -> None:
    for start in range(0, 1000, 100):
        effects = (kept(Keep("server", 50, 60), number) for number in range(start, start + 100))
        await bench.done(b"job", *effects)
    length = await bench.redis.xlen(bench.keys.finished_jobs("server"))
    assert 50 <= length <= 250
    assert await bench.redis.smembers(bench.keys.finished) == {b"server"}
    for key in (bench.keys.finished, bench.keys.finished_jobs("server")):
        assert 0 < await bench.redis.ttl(key) <= 60
    # The index lives as long as its longest list.
    await bench.done(b"job", kept(Keep("queue/q", 50, 600), 1), kept(Keep("server", 50, 60), 2))
    assert await bench.redis.ttl(bench.keys.finished) > 500


def fill(db: redis.Redis, keys: Keys, numbers: int) -> None:
    """Entries in three lists, of which several have the same time."""
    for number in range(numbers):
        name = f"queue/{number % 3}"
        db.sadd(keys.finished, name)
        fields: Any = {"v": kept(Keep(name, 10, 60), number).entry}
        db.xadd(keys.finished_jobs(name), fields, id=f"{1000 + number // 6}-{number // 3 % 2 + 1}")


def test_all_lists_are_read_in_one_order(where: RedisConfig, db: redis.Redis) -> None:
    keys, admin = Keys(where.namespace), Admin(where)
    fill(db, keys, 60)
    db.sadd(keys.finished, "gone")
    db.xadd(keys.finished_jobs("queue/0"), {"other": "field"})
    found, after = [], ""
    while True:
        page = admin.run(read_finished(keys, FinishedFilter(), after, 7))
        found += [job.at for job in page.jobs]
        if not (after := page.next):
            break
    assert len(found) == len(set(found)) == 60
    assert sorted(found, key=lambda at: (int(at[:4]), int(at[5]), at)) == found[::-1]
    assert [job.jid for job in FinishedSet(where).matching(FinishedFilter(jid="j7"))] == ["j7"]
    with pytest.raises(BadArgumentError, match="is not the place of a finished job"):
        admin.run(read_finished(keys, FinishedFilter(), "x"))


async def test_without_keep_an_outcome_is_that_of_any_job(bench: Bench) -> None:
    await bench.done(b"job")
    assert DONE.effects == ()
    assert not await bench.redis.exists(bench.keys.finished)
