"""Faults of Redis and of the network before it. Rows R1, R2, R4 and R8 are proved in tests/system as well."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers import Client, PyworkersError
from pyworkers.errors import StoreError
from tests.faults.fleet import APP, Fleet
from tests.faults.ledger import clock
from tests.helpers.proxy import Proxy, Trap, proxied, script
from tests.helpers.redises import OwnRedis, Sentinel, blocked
from tests.helpers.support import stretched, wait_for

FIRE = '[[cron]]\nname = "tick"\nschedule = "* * * * * *"\nqueue = "other"\nclass = "elsewhere"\n'
SCRIPTS = ["exchange", "renew", "promote", "recover", "cron/fire", "give_back", "deregister"]


@pytest.fixture
def proxy(one_redis_url: str) -> Iterator[Proxy]:
    with proxied(one_redis_url) as running:
        yield running


@pytest.fixture
def private(tmp_path: Path, own: OwnRedis) -> Iterator[Fleet]:
    """A fleet on its own Redis."""
    with Fleet(tmp_path, own.url, "") as fleet:
        yield fleet


@pytest.mark.fault("R3")
@pytest.mark.parametrize("action", ["swallow", "reset"])
def test_r3_a_job_whose_fetch_reply_is_lost_is_adopted_and_runs_once(
    fleet: Fleet, proxy: Proxy, action: str
) -> None:
    fleet.server(url=proxy.url)
    wait_for(lambda: blocked(fleet.redis) == 2, message="a blocking fetch of each queue")
    trap = proxy.trap(Trap(b"BRPOPLPUSH", b'"jid"', action))  # type: ignore[arg-type]
    first = fleet.enqueue()
    wait_for(lambda: trap.sprung, message="the reply is lost")
    # Redis does not answer on that connection any more; a new one has to fetch what comes now.
    second = fleet.enqueue()
    fleet.wait_for_notes(1, "end", second)
    fleet.wait_for_notes(1, "end", first)
    fleet.rest()
    assert len(fleet.events("job.adopted")) == 1
    fleet.stop()
    fleet.check()


@pytest.mark.fault("R3")
@pytest.mark.parametrize("action", ["reset", pytest.param("swallow", marks=pytest.mark.lengthy)])
def test_r3_the_reply_of_every_script_may_be_lost(fleet: Fleet, proxy: Proxy, action: str) -> None:
    # The owner of some jobs has died: there is something to recover.
    held = fleet.keys.inprogress("q", "dead:1:0")
    with fleet.redis.pipeline() as pipe:
        pipe.hset(fleet.keys.owners, "dead:1:0", '["q"]')
        for _ in range(3):
            fleet.enqueue()
            pipe.lmove(fleet.keys.queue("q"), held, "RIGHT", "LEFT")
        pipe.execute()
    traps = {name: proxy.trap(Trap(script(name), action=action)) for name in SCRIPTS[:-2]}  # type: ignore[arg-type]
    server = fleet.server(url=proxy.url, config=FIRE, concurrency=2)
    for number in range(40):
        fleet.enqueue("work", 0.01, int(number % 10 == 0), delay=0.3 * (number % 3))
    wait_for(lambda: all(trap.sprung for trap in traps.values()), message=f"{traps}")
    fleet.wait_for_notes(43, "end")
    kept = fleet.enqueue("meet", "never")
    fleet.wait_for_notes(1, "start", kept)
    last = proxy.trap(Trap(script("give_back"), action=action))  # type: ignore[arg-type]
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert last.sprung == 1
    # What that server could not say any more, another one finds out.
    fleet.go("never")
    fleet.server()
    fleet.wait_for_notes(1, "end", kept)
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs={kept: 1})


@pytest.mark.fault("R3")
def test_r3_a_server_cut_off_for_longer_than_its_lease_gives_up_its_jobs(fleet: Fleet, proxy: Proxy) -> None:
    cut_off = fleet.server(url=proxy.url)
    jids = [fleet.enqueue("meet", "go") for _ in range(3)]
    fleet.wait_for_notes(3, "start")
    with proxy.partition():
        peer = fleet.server()
        peer.wait_for_event("process.recovered", jobs=3)
        fleet.wait_for_notes(6, "start")
    assert "partition" in proxy.done
    cut_off.wait_for_event("lease.lost")
    fleet.go()
    fleet.rest()
    after = [fleet.enqueue() for _ in range(10)]
    fleet.wait_for_notes(3 + len(after), "end")
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs=dict.fromkeys(jids, 1), unleased=jids)


@pytest.mark.fault("R3")
def test_r3_a_slow_and_cutting_network_loses_nothing(fleet: Fleet, proxy: Proxy) -> None:
    fleet.server(url=proxy.url)
    proxy.delay_s = 0.002
    total, cuts = 60, 6
    for number in range(total):
        fleet.enqueue("work", 0.01)
        if number % (total // cuts) == 5:
            # Somewhere within a reply of the next job.
            proxy.reset_after = 100 + number
            wait_for(lambda: proxy.reset_after is None, message="a connection is cut")
    fleet.wait_for_notes(total, "end")
    fleet.rest()
    assert proxy.done.count("reset_after") == cuts
    assert proxy.done.count("delay") > total
    fleet.stop()
    fleet.check()


@pytest.mark.lengthy
@pytest.mark.fault("R2")
def test_r2_a_redis_killed_under_load_comes_back_with_everything(private: Fleet, own: OwnRedis) -> None:
    # A lease that outlasts a stall of one of them: this is not about recovery.
    private.server(lease=30)
    private.server(lease=30)
    for number in range(60):
        with contextlib.suppress(PyworkersError):
            # One whose reply was lost may be in Redis or not; one that is said to be there must run.
            private.enqueue("work", 0.02)
        if number % 20 == 10:
            own.kill()
            own.start()
    for server in private.servers:
        server.wait_for_event("redis.up")
    private.rest()
    private.stop()
    private.check()


@pytest.mark.fault("R5")
@pytest.mark.timeout(150)
def test_r5_after_a_failover_the_new_primary_is_found(tmp_path: Path, one_binary: str) -> None:
    primary = OwnRedis(one_binary, tmp_path / "primary").start()
    replica = OwnRedis(
        one_binary, tmp_path / "replica", "--replicaof", "127.0.0.1", str(primary.port), "--save", ""
    ).start()
    sentinel = Sentinel(one_binary, tmp_path / "sentinel", primary).start()
    try:
        wait_for(lambda: _replicas(sentinel) == 1, message="the sentinel knows the replica")
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/mymaster/0"
        with Fleet(tmp_path, replica.url, "") as fleet:
            fleet.client = Client(url, namespace="")
            # A lease that outlasts the failover: this is not about recovery.
            fleet.server(url=url, lease=30)
            before = [fleet.enqueue() for _ in range(20)]
            fleet.wait_for_notes(20, "end")
            running = fleet.enqueue("meet", "go")
            fleet.wait_for_notes(1, "start", running)
            # Replication is asynchronous: the promise counts from the moment the replica has it.
            with primary.client() as client:
                client.wait(1, 5000)
            primary.kill()
            fleet.go()
            wait_for(lambda: sentinel.primary() == replica.port, message="a failover")
            wait_for(lambda: _is_primary(replica), message="the replica is the primary")
            began = clock()
            last = _enqueue_at_last(fleet)
            fleet.wait_for_notes(1, "end", last)
            assert clock() - began < stretched(2)
            fleet.wait_for_notes(1, "end", running)
            fleet.rest()
            fleet.stop()
            # Outcomes that the replica had not got before the primary died are settled again, or run again.
            fleet.check(extra_runs=dict.fromkeys([*before, running], 1))
    finally:
        for server in (sentinel, replica, primary):
            server.kill()


def _replicas(sentinel: OwnRedis) -> int:
    with sentinel.client() as client:
        return len(client.sentinel_slaves("mymaster"))


def _is_primary(server: OwnRedis) -> bool:
    with server.client() as client:
        return bool(client.role()[0] == b"master")


def _enqueue_at_last(fleet: Fleet) -> str:
    def attempt() -> str:
        with contextlib.suppress(PyworkersError):
            return fleet.enqueue()
        return ""

    return wait_for(attempt, message="the producer finds the primary")


@pytest.mark.fault("R5")
def test_r5_a_replica_in_place_of_the_primary_is_waited_out(private: Fleet, own: OwnRedis) -> None:
    server = private.server(lease=30)
    jids = [private.enqueue("meet", "go") for _ in range(3)]
    private.wait_for_notes(3, "start")
    # A port on which no server listens, also no other test's.
    private.redis.replicaof("127.0.0.1", 1)
    private.go()
    private.wait_for_notes(3, "end")
    server.wait_for_event("redis.down")
    with pytest.raises(PyworkersError):
        private.enqueue()
    private.redis.replicaof("NO", "ONE")
    began = clock()
    private.wait_for_notes(1, "end", private.enqueue())
    assert clock() - began < stretched(2)
    private.rest()
    assert server.events("server.failed") == []
    private.stop()
    private.check()
    assert set(jids) <= {note.jid for note in private.ledger.notes("end")}


@pytest.mark.fault("R6")
def test_r6_a_full_memory_refuses_new_jobs_and_lets_the_others_settle(private: Fleet) -> None:
    private.server()
    running = [private.enqueue("meet", "go"), private.enqueue("work", 0.5, 1), private.enqueue("work", 0.5)]
    waiting = [private.enqueue() for _ in range(20)]
    private.wait_for_notes(3, "start")
    private.redis.config_set("maxmemory", 1)
    with pytest.raises(StoreError, match="maxmemory"):
        private.enqueue()
    private.go()
    # The first failure of the second job waits in retry: put there, and taken out again, while it was full.
    private.wait_for_notes(1, "raise")
    private.wait_for_notes(len(waiting) + 2, "end")
    private.wait_for_notes(1, "end", running[1])
    wait_for(lambda: not list(private.redis.scan_iter("*:inprogress")), message="settled while full")
    with pytest.raises(StoreError, match="maxmemory"):
        private.enqueue()
    private.redis.config_set("maxmemory", 0)
    private.rest()
    private.stop()
    private.check()


@pytest.mark.fault("R6")
def test_r6_a_full_memory_takes_no_lease_from_a_live_server(private: Fleet) -> None:
    server = private.server(lease=4)
    [lease] = private.redis.scan_iter("pyworkers:lease:*")
    jid = private.enqueue("meet", "go")
    private.wait_for_notes(1, "start", jid)
    private.redis.config_set("maxmemory", 1)
    for _ in range(3):
        wait_for(lambda: private.redis.pttl(lease) < 3700, message="the next renewal is due")
        wait_for(lambda: private.redis.pttl(lease) > 3800, message="the lease is renewed")
    private.redis.delete(lease, private.keys.owners)
    wait_for(lambda: private.redis.exists(lease, private.keys.owners) == 2, message="registered again")
    # A server that starts now can serve, too: only jobs free memory.
    private.server(lease=4)
    assert private.redis.hlen(private.keys.owners) == 2
    private.go()
    private.wait_for_notes(1, "end", jid)
    wait_for(lambda: private.events("redis.refused", part="counters"), message="the end cannot be counted")
    private.redis.config_set("maxmemory", 0)
    private.rest()
    wait_for(lambda: private.redis.get(private.keys.stat("processed")) == b"1", message="it is counted")
    assert private.events("redis.refused", part="lease") == []
    assert server.events("lease.lost") + private.events("process.recovered") == []
    private.stop()
    private.check()


@pytest.mark.fault("R6")
def test_r6_a_server_that_dies_while_the_memory_is_full_is_recovered(private: Fleet) -> None:
    dying, peer = private.server(), private.server(start=False)
    jids = [private.enqueue("meet", "go") for _ in range(3)]
    private.wait_for_notes(3, "start")
    private.redis.config_set("maxmemory", 1)
    peer.start(app=APP)
    dying.kill()
    peer.wait_for_event("process.recovered", jobs=3)
    private.go()
    for each in jids:
        private.wait_for_notes(1, "end", each)
    assert peer.events("redis.refused", part="recovery") == []
    private.redis.config_set("maxmemory", 0)
    private.rest()
    private.stop()
    private.check(dict.fromkeys(jids, 1))


@pytest.mark.fault("R7")
def test_r7_flushed_scripts_are_not_noticed(fleet: Fleet) -> None:
    server = fleet.server()
    for number in range(60):
        fleet.enqueue("work", 0.005, int(number % 20 == 0), delay=0.05 * (number % 5))
        fleet.redis.script_flush()
    fleet.wait_for_notes(60, "end")
    fleet.rest()
    assert not fleet.events("redis.down") + fleet.events("queue.broken")
    assert server.events("server.failed") == []
    fleet.stop()
    fleet.check()


@pytest.mark.fault("R9")
def test_r9_a_database_flushed_under_load_costs_what_it_held_and_nothing_else(private: Fleet) -> None:
    # A lease that outlasts a stall of one of them.
    servers = [private.server(lease=12), private.server(lease=12)]
    # One for each worker, so that both servers have outcomes of jobs that are gone.
    for _ in range(6):
        private.enqueue("meet", "go")
    private.wait_for_notes(6, "start")
    for _ in range(54):
        private.enqueue("work", 0.05)
    private.redis.flushall()
    flushed = private.ledger.enqueued()
    private.go()
    later = [_enqueue_at_last(private) for _ in range(30)]
    private.wait_for_notes(1, "end", later[-1])
    private.rest()
    for server in servers:
        assert server.events("job.not_ours")
        assert server.events("server.failed") == []
    wait_for(lambda: private.redis.hlen(private.keys.owners) == 2, message="both are registered again")
    wait_for(
        lambda: len(list(private.redis.scan_iter("pyworkers:lease:*"))) == 2, message="both hold a lease"
    )
    private.stop()
    private.check(lost=frozenset(flushed))


@pytest.mark.fault("R10")
def test_r10_a_refused_login_is_named_and_not_hammered(private: Fleet) -> None:
    def let_in(password: str) -> None:
        private.redis.acl_setuser(
            "app", enabled=True, passwords=[f"+{password}"], keys="*", commands=["+@all"]
        )

    let_in("right")
    server = private.server(url=private.url.replace("//", "//app:other@"), ready=False)
    down = server.wait_for_event("redis.down")
    assert "refused the login" in down["error"]
    before = private.redis.info("stats")["total_connections_received"]
    time.sleep(2)
    assert private.redis.info("stats")["total_connections_received"] - before < 20
    let_in("other")
    server.wait_for_event("server.started")
    private.wait_for_notes(1, "end", private.enqueue())
    assert "other@" not in server.log_text()
    private.stop()
    private.check()


@pytest.mark.lengthy
@pytest.mark.fault("R11")
def test_r11_servers_that_fight_over_one_corpse_give_each_job_back_once(fleet: Fleet) -> None:
    dead = fleet.server()
    jids = [fleet.enqueue("meet", "go") for _ in range(3)]
    fleet.wait_for_notes(3, "start")
    peers = [fleet.server(start=False) for _ in range(4)]
    for peer in peers:
        peer.start(ready=False, app="tests.faults.app:worker")
    for peer in peers:
        peer.wait_for_event("server.started")
    os.kill(dead.pid, signal.SIGKILL)
    dead.vanish()
    fleet.wait_for_notes(6, "start")
    owners = fleet.keys.owners
    wait_for(lambda: fleet.redis.hlen(owners) == len(peers), message="the dead server is forgotten")
    fleet.go()
    fleet.rest()
    fleet.stop()
    recovered = [event["jobs"] for event in fleet.events("process.recovered")]
    assert sum(recovered) == 3
    fleet.check(extra_runs=dict.fromkeys(jids, 1))
