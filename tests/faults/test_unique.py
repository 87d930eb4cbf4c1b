"""Faults around unique jobs: the lock is held while its job is there, and by no job that has ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import redis

from pyworkers import Client
from pyworkers.api import LockSet, Queue
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from tests.faults.fleet import Fleet
from tests.helpers.proxy import Trap, proxied, script
from tests.helpers.support import ROOT, wait_for

FOR_S = 3600


def holders(fleet: Fleet) -> list[str]:
    return [lock.jid for lock in LockSet(fleet.url, namespace=fleet.namespace)]


def wait_for_release(fleet: Fleet) -> None:
    wait_for(lambda: not holders(fleet), message="the lock is released")


def enqueue(fleet: Fleet, job_class: str = "work", *args: object) -> str:
    return fleet.enqueue(job_class, *args, unique_for=FOR_S)


@pytest.mark.fault("U1")
def test_u1_a_job_that_kills_its_worker_keeps_its_lock_until_it_is_dead(fleet: Fleet) -> None:
    server = fleet.server(failpoints="job_end=kill*2")
    jid = enqueue(fleet, "meet", "go")
    fleet.wait_for_notes(1, "start", jid)
    assert enqueue(fleet, "meet", "go") == jid
    fleet.go()
    fleet.wait_for_notes(3, "end", jid)
    wait_for_release(fleet)
    fleet.rest()
    assert server.fired_at("job_end")
    fleet.stop()
    fleet.check(extra_runs=2)


@pytest.mark.fault("U1")
def test_u1_the_death_of_a_job_whose_worker_says_nothing_releases_its_lock(fleet: Fleet) -> None:
    fleet.server(failpoints="job_end=kill")
    jid = enqueue(fleet)
    wait_for(lambda: fleet.redis.zcard(fleet.keys.dead), message="the job is dead")
    wait_for_release(fleet)
    assert enqueue(fleet) != jid
    fleet.servers[0].kill()


@pytest.mark.fault("U2")
@pytest.mark.parametrize(
    ("place", "held"), [("after_fetch", True), ("before_settle", True), ("after_settle", False)]
)
def test_u2_a_server_killed_between_two_steps_leaves_the_lock_with_its_job(
    fleet: Fleet, place: str, held: bool
) -> None:
    server = fleet.server(failpoints=f"{place}=kill*1")
    jid = enqueue(fleet)
    server.wait_for_failpoint(place)
    server.vanish()
    assert holders(fleet) == ([jid] if held else [])
    if held:
        assert enqueue(fleet) == jid
    fleet.server()
    fleet.wait_for_notes(1, "end", jid)
    wait_for_release(fleet)
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs=1)


@pytest.mark.fault("U3")
@pytest.mark.parametrize("action", ["reset", pytest.param("swallow", marks=pytest.mark.lengthy)])
def test_u3_who_enqueues_again_after_a_lost_reply_gets_the_job_that_is_there(
    one_redis_url: str, namespace: str, action: str
) -> None:
    with proxied(one_redis_url) as proxy, Client(proxy.url, namespace=namespace) as client:
        # Redis knows the script then: the reply that is lost is not that of an unknown script.
        client.enqueue("other", "Add", unique_for=FOR_S)
        trap = proxy.trap(Trap(script("push"), action=action))  # type: ignore[arg-type]
        with pytest.raises(RedisUnavailableError):
            client.enqueue("q", "Add", [1], unique_for=FOR_S)
        assert trap.sprung == 1
        jid = client.enqueue("q", "Add", [1], unique_for=FOR_S)
        assert [job.jid for job in Queue("q", one_redis_url, namespace=namespace)] == [jid]


PRODUCER = """
import sys
from pyworkers import Client
url, namespace = sys.argv[1:]
with Client(url, namespace=namespace) as client:
    number = 0
    while True:
        client.enqueue_bulk("q", "Add", ([number + n] for n in range(7)), unique_for=3600)
        number += 5
"""


@pytest.mark.fault("U3")
def test_u3_a_producer_that_is_killed_leaves_a_job_for_each_lock(one_redis_url: str, namespace: str) -> None:
    queue = Queue("q", one_redis_url, namespace=namespace)
    for most in (20, 200, 2000):
        command = [sys.executable, "-c", PRODUCER, one_redis_url, namespace]
        with subprocess.Popen(command, cwd=ROOT) as producer:
            wait_for(lambda most=most: queue.size > most, message="the producer has begun")  # type: ignore[misc]
            producer.send_signal(signal.SIGKILL)
        assert producer.returncode == -signal.SIGKILL
        jobs = [job.jid for job in queue]
        assert len(jobs) == len(set(jobs))
        assert {lock.jid for lock in LockSet(one_redis_url, namespace=namespace)} == set(jobs)


@pytest.mark.fault("U4")
def test_u4_a_settlement_sent_twice_does_not_release_the_lock_of_the_next_job(
    fleet: Fleet, one_redis_url: str
) -> None:
    with proxied(one_redis_url) as proxy:
        fleet.server(url=proxy.url)
        jid = enqueue(fleet, "meet", "go")
        fleet.wait_for_notes(1, "start", jid)
        trap = proxy.trap(Trap(script("exchange"), action="reset"))
        fleet.go()
        wait_for(lambda: trap.sprung, message="the reply to the settlement is lost")
        wait_for_release(fleet)
        later = fleet.client.enqueue_in(FOR_S, "q", "meet", ["go"], unique_for=FOR_S)
        assert later != jid
        other = enqueue(fleet)
        fleet.wait_for_notes(1, "end", other)
        wait_for(lambda: holders(fleet) == [later], message="only the lock of the next job is left")
        fleet.stop()


@pytest.mark.fault("U5")
def test_u5_a_lock_that_redis_lost_costs_a_duplicate_and_nothing_else(fleet: Fleet) -> None:
    fleet.server()
    first = enqueue(fleet, "meet", "go")
    fleet.wait_for_notes(1, "start", first)
    (name,) = fleet.redis.keys(fleet.keys.unique("*"))
    fleet.redis.delete(name)
    second = fleet.client.enqueue_in(FOR_S, "q", "meet", ["go"], unique_for=FOR_S)
    assert first != second
    fleet.go()
    fleet.wait_for_notes(1, "end", first)
    fleet.wait_for_notes(1, "end", enqueue(fleet))
    wait_for(lambda: holders(fleet) == [second], message="the other lock is released")
    fleet.stop()


@pytest.mark.fault("U5")
def test_u5_a_lock_of_another_type_does_not_stop_the_job(fleet: Fleet) -> None:
    server = fleet.server()
    jid = enqueue(fleet, "meet", "go")
    fleet.wait_for_notes(1, "start", jid)
    (name,) = fleet.redis.keys(fleet.keys.unique("*"))
    fleet.redis.delete(name)
    fleet.redis.hset(name, "f", 1)
    fleet.go()
    failed = server.wait_for_event("effect.failed", effect="Unlock")
    assert failed["error"].startswith("WRONGTYPE")
    fleet.wait_for_notes(1, "end", jid)
    fleet.rest()
    fleet.stop()
    fleet.redis.delete(name)
    fleet.check()


@pytest.mark.fault("U6")
def test_u6_many_producers_at_once_fill_a_queue_to_its_limit(one_redis_url: str, namespace: str) -> None:
    code = """
import sys
from pyworkers import Client
url, namespace = sys.argv[1:]
with Client(url, namespace=namespace) as client:
    print(sum(client.try_enqueue("q", "Add", [n], max_waiting=500) is not None for n in range(400)))
"""
    command = [sys.executable, "-c", code, one_redis_url, namespace]
    producers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(4)]
    counts = [int(producer.communicate()[0]) for producer in producers]
    assert sum(counts) == 500
    with redis.Redis.from_url(one_redis_url) as connection:
        assert connection.llen(Keys(namespace).queue("q")) == 500
