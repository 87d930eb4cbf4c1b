"""What reading costs with many servers and queues: by counts of commands, those inside scripts included."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import redis

from pyworkers.api import ProcessSet, Stats
from pyworkers.client import Client
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState
from tests.helpers.records import raw_job, register
from tests.helpers.redises import OwnRedis

SERVERS = [f"web:{number}:abcdef" for number in range(50)]
QUEUES = [f"queue-{number:04}" for number in range(1000)]
T = TypeVar("T")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, valkey_binary: str) -> Iterator[OwnRedis]:
    """Fifty servers with a thousand queues each, a job in three of the queues, and one that runs."""
    keys = Keys()
    with OwnRedis(valkey_binary, tmp_path_factory.mktemp("fleet") / "redis", "--save", "") as server:
        with server.start().client() as db:
            for identity in SERVERS:
                db.hset(keys.owners, identity, json.dumps(QUEUES))
                db.set(keys.lease(identity), identity)
                register(db, keys, identity, {"hostname": "h", "pid": 1, "queues": QUEUES}, look=0, beat=2e9)
            db.sadd(keys.queues, *QUEUES)
            for queue in (QUEUES[0], QUEUES[400], QUEUES[-1]):
                db.lpush(keys.queue(queue), raw_job(f"in-{queue}", queue=queue))
            db.lpush(keys.inprogress(QUEUES[7], SERVERS[30]), raw_job("runs", queue=QUEUES[7]))
        yield server


def commands(fleet: OwnRedis, work: Callable[[], T]) -> tuple[T, int]:
    """The result of some work, and the number of commands that Redis executed for it."""
    with fleet.client() as db:
        db.config_resetstat()
        found = work()
        return found, sum(row["calls"] for row in db.info("commandstats").values())


def test_stats_ask_for_the_lists_that_exist(fleet: OwnRedis) -> None:
    stats, number = commands(fleet, lambda: Stats.fetch(fleet.url))
    assert [queue.size for queue in stats.queues if queue.size] == [1, 1, 1]
    assert [queue.in_progress_by for queue in stats.queues if queue.in_progress] == [{SERVERS[30]: 1}]
    assert len(stats.queues) == len(QUEUES) and all(queue.served for queue in stats.queues)
    assert number <= 2000


def test_servers_that_do_not_answer_are_asked_ever_less_often(fleet: OwnRedis) -> None:
    _, number = commands(fleet, ProcessSet(fleet.url).refresh)
    assert number <= 12 * len(SERVERS)


@pytest.mark.parametrize(
    "search", [lambda client: client.cancel("none"), lambda client: client.find("none").state]
)
def test_an_unknown_id_is_sought_where_jobs_are(fleet: OwnRedis, search: Callable[[Client], object]) -> None:
    with Client(fleet.url) as client:
        assert client.find("runs").state is JobState.RUNNING
        assert client.find(f"in-{QUEUES[400]}").state is JobState.WAITING
        found, number = commands(fleet, lambda: search(client))
    assert found == "unknown"
    assert number <= 1000


@pytest.fixture(scope="module")
def filled(fleet: OwnRedis) -> Iterator[str]:
    """The URL of a database with a thousand queues, each with some jobs, one with many and large ones."""
    url, keys = fleet.url.replace("/0", "/1"), Keys()
    jobs = {queue: [raw_job(f"{queue}-{number}", queue=queue) for number in range(3)] for queue in QUEUES}
    # Twice what one call reads, and more than one page.
    jobs[QUEUES[500]] = [raw_job(f"large-{number}", args=["x" * 20_000]) for number in range(450)]
    with redis.Redis.from_url(url) as db, db.pipeline(transaction=False) as pipe:
        pipe.sadd(keys.queues, *QUEUES)
        for queue, raws in jobs.items():
            pipe.rpush(keys.queue(queue), *raws)
        pipe.execute()
    yield url


@pytest.mark.parametrize(
    "search", [lambda client: client.cancel("none"), lambda client: client.find("none").state]
)
def test_filled_queues_are_searched_together(
    fleet: OwnRedis, filled: str, search: Callable[[Client], object]
) -> None:
    """A command for each queue, twice because jobs move meanwhile; and scripts for hundreds of queues."""
    with Client(filled) as client:
        search(client)  # Redis keeps the scripts from here on.
        found, number = commands(fleet, lambda: search(client))
        with fleet.client() as db:
            stats = db.info("commandstats")
        scripts = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))
    assert found == "unknown"
    assert number <= 2 * len(QUEUES) + 100 and scripts <= 12


@pytest.mark.parametrize("jid", ["queue-0000-0", "queue-0499-2", "large-0", "large-449", "queue-0999-2"])
def test_a_job_is_found_in_short_and_long_queues(filled: str, jid: str) -> None:
    with Client(filled) as client:
        assert client.find(jid).state is JobState.WAITING
        assert client.cancel(jid) == "removed"
        assert client.find(jid).state is JobState.UNKNOWN
