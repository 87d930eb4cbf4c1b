"""Heartbeat: Sidekiq's tools list the server, see what it runs, and can quiet and stop it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.api import ProcessSet, WorkerView
from tests.helpers.replies import as_bytes, as_texts
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.sidekiq_api import sidekiq
from tests.helpers.support import wait_for

CODE = """
@worker.process("q", concurrency=2)
def handle(message):
    note("start", message.jid)
    wait_for_file("finish")

@worker.job(queue="mail", concurrency=3)
def send_mail(to: str = "ann", lang: str = "en"):
    pass
"""
# Sidekiq 6 knows no namespaces without a gem; another database keeps these tests apart.
SIDEKIQ6 = {"PYWORKERS_SERVER__SIDEKIQ6": "true"}


@pytest.fixture
def own_url(one_redis_url: str) -> Iterator[str]:
    url = one_redis_url.removesuffix("/0") + "/9"
    yield url
    with redis.Redis.from_url(url) as connection:
        connection.flushdb()


def identity_of(server: ServerProcess) -> str:
    (name,) = wait_for(lambda: server.redis.smembers(server.keys.processes), message="it is listed")
    return as_bytes(name).decode()


def fields_of(server: ServerProcess) -> dict[str, str]:
    return as_texts(server.redis.hgetall(server.keys.process(identity_of(server))))


def workers_of(server: ServerProcess) -> Counter[str]:
    """The states of the workers of all groups."""
    groups = json.loads(fields_of(server)["groups"]).values()
    return sum((Counter(group["workers"]) for group in groups), Counter())


def work_of(server: ServerProcess) -> list[dict[str, Any]]:
    found = server.redis.hgetall(server.keys.work(identity_of(server)))
    return [json.loads(value) for value in found.values()]


def test_the_hash_holds_what_every_sidekiq_reads(serve_either: Serve, tmp_path: Path) -> None:
    begun = time.time()
    with serve_either(CODE) as server:
        raw = b'{"class":"Any","args":["\xc3\xa9", 1.50],"jid":"a","unknown":1e3}'
        started = time.time()
        server.push("q", raw)
        server.wait_for_notes(1, "start")
        # Some workers may start after the first job.
        wait_for(lambda: workers_of(server) == {"idle": 4, "busy": 1}, message="all workers are shown")
        fields = fields_of(server)
        info = json.loads(fields["info"])
        hostname, pid, _ = identity_of(server).split(":")
        assert set(fields) == {
            "info", "busy", "beat", "quiet", "rss", "rtt_us", "concurrency", "worker_heartbeats", "look",
            "groups", "classes", "features", "signatures", "workers", "stops_at",
        }  # fmt: skip
        assert fields["stops_at"] == "0"
        assert json.loads(fields["signatures"]) == {"send_mail": ["to: str = …, lang: str = …", 0, 2]}
        assert (fields["quiet"], fields["concurrency"], fields["worker_heartbeats"]) == ("false", "5", "[]")
        assert info["started_at"] - 1 < int(fields["beat"]) <= time.time()
        wait_for(lambda: server.redis.zscore(server.keys.wire, "1"), message="its wire is noted")
        # A master, a fork server and five workers: what they share has 10 MB at least.
        wait_for(lambda: int(fields_of(server)["rss"]) > 10 * 1024)
        assert int(fields["rtt_us"]) > 0
        assert info["hostname"] == hostname and str(info["pid"]) == pid == str(server.pid)
        assert begun <= info["started_at"] <= started
        assert info["concurrency"] == 5 and info["queues"] == ["q", "mail"]
        assert info["weights"] == [{"q": 0}, {"mail": 0}]
        assert info["capsules"] == {
            "q": {"concurrency": 2, "mode": "strict", "weights": {"q": 0}},
            "mail": {"concurrency": 3, "mode": "strict", "weights": {"mail": 0}},
        }
        shared = {"strict": True, "mode": "process", "ordered": False, "restarts": 0}
        assert json.loads(fields["groups"]) == {
            "q": {
                **shared,
                "queues": {"q": 1},
                "processes": 2,
                "concurrency": 2,
                "busy": 1,
                "workers": {"idle": 1, "busy": 1},
            },
            "mail": {
                **shared,
                "queues": {"mail": 1},
                "processes": 3,
                "concurrency": 3,
                "busy": 0,
                "workers": {"idle": 3},
            },
        }
        assert info["identity"] == identity_of(server) and info["labels"] == [] and info["embedded"] is False
        assert info["tag"] == tmp_path.name
        (work,) = work_of(server)
        assert work["queue"] == "q" and work["payload"].encode() == raw
        assert int(started) <= work["run_at"] <= time.time()
        # Between go-workers2's 65 s and forever; the jobs as in Sidekiq.
        assert 70 < server.redis.ttl(server.keys.process(identity_of(server))) <= 90
        assert 0 < server.redis.ttl(server.keys.work(identity_of(server))) <= 60
        assert not server.redis.exists(server.keys.workers(identity_of(server)))
        server.let_go("finish")
        wait_for(lambda: fields_of(server)["busy"] == "0" and not work_of(server))


def test_workers_are_listed_with_their_state_and_a_crash_counts_as_a_restart(
    serve: Serve, one_redis_url: str, namespace: str
) -> None:
    with serve(CODE) as server:
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        [[busy, *_]] = server.wait_for_notes(1, "start")
        servers = ProcessSet(one_redis_url, namespace=namespace)
        wait_for(lambda: servers.size, message="it is listed")

        def shown(pid: int) -> WorkerView | None:
            servers.refresh()
            [process] = servers
            return next((worker for worker in process.view.workers if worker.pid == pid), None)

        def measured() -> WorkerView | None:
            worker = shown(busy)
            return worker if worker is not None and worker.rss_kb else None

        worker = wait_for(measured, message="it is measured")
        assert worker is not None
        assert (worker.group, worker.state, worker.jobs_done) == ("q", "busy", 0)
        assert 0 <= time.time() - worker.started_at < 600
        os.kill(busy, signal.SIGKILL)
        wait_for(lambda: shown(busy) is None, message="the worker is gone")
        [process] = servers
        assert [(group.name, group.restarts) for group in process.about.groups] == [("q", 1), ("mail", 0)]
        server.let_go("finish")


def test_memory_that_the_processes_share_counts_once(serve: Serve) -> None:
    code = f"{CODE}\nballast = b'x' * 100_000_000\n"
    with serve(code) as server:
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        server.wait_for_notes(1, "start")
        wait_for(lambda: fields_of(server).get("busy") == "1")
        rss_kb = wait_for(lambda: (kb := int(fields_of(server)["rss"])) > 100_000_000 / 1024 and kb)
        # The fork server and five workers have it, in the same pages.
        assert rss_kb < 300_000_000 / 1024  # counted in each, it would be 600


def test_sidekiqs_api_lists_the_process_and_its_jobs(tmp_path: Path, own_url: str) -> None:
    with serving(tmp_path, own_url, "", CODE, **SIDEKIQ6) as server:
        server.push("q", {"class": "Any", "args": [1], "jid": "a"}, {"class": "Any", "args": [2], "jid": "b"})
        server.wait_for_notes(2, "start")
        wait_for(lambda: fields_of(server).get("busy") == "2")
        (process,) = sidekiq(
            own_url,
            """Sidekiq::ProcessSet.new.map { |p|
                 [p.identity, p.queues, p.labels, p.stopping?, p["concurrency"], p["busy"], p["pid"]] }""",
        )
        assert process == [identity_of(server), ["q", "mail"], [], False, 5, 2, server.pid]
        works = sidekiq(
            own_url,
            """Sidekiq::WorkSet.new.map { |id, tid, work|
                 [id, tid, work["queue"], work["run_at"].class.name, work["payload"]["jid"]] }""",
        )
        identity = identity_of(server)
        tids = {f"{note[0]}.1": note[2] for note in server.ledger()}
        assert sorted(works) == sorted([identity, tid, "q", "Integer", jid] for tid, jid in tids.items())


def test_sidekiqs_buttons_quiet_and_stop_the_server(tmp_path: Path, own_url: str) -> None:
    with serving(tmp_path, own_url, "", CODE) as server:
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        server.wait_for_notes(1, "start")
        server.wait_until_listed()
        sidekiq(own_url, "Sidekiq::ProcessSet.new.each(&:quiet!); 1")
        server.wait_for_event("manager.state", queue="q", state="quiet")
        wait_for(lambda: fields_of(server)["quiet"] == "true")
        assert sidekiq(own_url, "Sidekiq::ProcessSet.new.map(&:stopping?)") == [True]
        sidekiq(own_url, "Sidekiq::ProcessSet.new.each(&:stop!); 1")
        server.wait_for_event("server.stopping")
        (tmp_path / "finish").touch()
        assert server.wait() == 0
        assert sidekiq(own_url, "[Sidekiq::ProcessSet.new.size, Sidekiq::WorkSet.new.size]") == [0, 0]
        assert {name for name in server.redis.scan_iter() if server.redis.ttl(name) < 0} == {
            b"stat:processed"
        }


def test_a_stop_is_shown_with_its_end_and_differs_from_quiet(
    serve: Serve, one_redis_url: str, namespace: str
) -> None:
    limit = {"PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "500"}
    with serve(CODE, **limit) as server:
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        server.wait_for_notes(1, "start")
        identity_of(server)
        server.signal(signal.SIGTSTP)

        def state() -> str:
            [process] = ProcessSet(one_redis_url, namespace=namespace)
            return process.about.state(time.time())

        wait_for(lambda: state() == "quiet")
        begun = time.time()
        server.signal(signal.SIGTERM)
        wait_for(lambda: state() == "stopping")
        [process] = ProcessSet(one_redis_url, namespace=namespace)
        assert process.stopping and process.stops_at is not None
        # Whole seconds, and two readings of the clock.
        assert begun + 498 <= process.stops_at <= time.time() + 502
        server.let_go("finish")
        assert server.wait() == 0


def test_a_dump_can_be_asked_for_and_unknown_words_are_dropped(serve: Serve) -> None:
    with serve(CODE) as server:
        identity = identity_of(server)
        server.redis.lpush(server.keys.signals(identity), "KILL", b"\xff", "TTIN")
        server.wait_for_event("signal.unknown", signal="KILL")
        server.wait_for_event("server.state", queue="q")
        assert len(server.events("signal.unknown")) == 2
        assert server.process is not None and server.process.poll() is None


def test_the_dead_are_pruned_and_foreign_rows_stay(serve: Serve, one_redis_url: str, namespace: str) -> None:
    connection = redis.Redis.from_url(one_redis_url)
    connection.sadd(f"{namespace}processes", "dead:1:ab", b"\xff:gone", b"\xff:odd", "go:1:cd")
    connection.hset(f"{namespace}go:1:cd", "info", "{}")
    connection.hset(f"{namespace}".encode() + b"\xff:odd", "info", "{}")
    with serve(CODE) as server:
        server.wait_for_event("process.pruned", owner="dead:1:ab")
        server.wait_for_event("process.pruned", owner="\\xff:gone")
        rest = {b"\xff:odd", b"go:1:cd"}
        wait_for(lambda: len(connection.smembers(f"{namespace}processes")) == 3)
        assert server.stop() == 0
        assert connection.smembers(f"{namespace}processes") == rest
    connection.close()


def test_a_killed_server_is_listed_no_more_once_a_peer_has_recovered_it(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    settings = {"PYWORKERS_SERVER__LEASE": "2", "PYWORKERS_SERVER__SIDEKIQ6": "true"}
    for name in ("dying", "peer"):
        (tmp_path / name).mkdir()
    with serving(tmp_path / "dying", one_redis_url, namespace, CODE, **settings) as dying:
        identity = identity_of(dying)
        dying.redis.lpush(dying.keys.signals(identity), "TTIN")
        dying.push("q", {"class": "Any", "args": [], "jid": "a"})
        wait_for(lambda: work_of(dying))
        dying.kill()
        # A Sidekiq that has just said its name, and one that has died, are none of a peer's business.
        sidekiqs = {b"web:1:abcdef"}
        dying.redis.sadd(dying.keys.processes, *sidekiqs)
        dying.redis.set(dying.keys.process_cleanup, "1", ex=600)
        with serving(tmp_path / "peer", one_redis_url, namespace, CODE, **settings) as peer:
            peer.wait_for_event("process.recovered", owner=identity)
            peer.wait_until_listed()
            listed = peer.redis.smembers(peer.keys.processes)
            assert identity.encode() not in listed and listed > sidekiqs
            for key in (peer.keys.work, peer.keys.workers, peer.keys.signals):
                assert not peer.redis.exists(key(identity))
            # go-workers2 may have read the set before: its heartbeat ends for good without this field.
            assert peer.redis.hget(peer.keys.process(identity), "worker_heartbeats") == b"[]"
            assert 0 < peer.redis.ttl(peer.keys.process(identity)) <= 90
            (tmp_path / "peer" / "finish").touch()


def test_a_heartbeat_that_fails_costs_no_job(
    serve: Serve, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    with redis.Redis.from_url(one_redis_url) as connection:
        connection.set(f"{namespace}processes", "not a set")
    (tmp_path / "finish").touch()
    with serve(CODE) as server:
        server.wait_for_event("redis.refused", part="heartbeat")
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        server.wait_for_notes(1, "start")
        server.redis.delete(server.keys.processes)
        server.wait_for_event("redis.accepted", part="heartbeat")
        wait_for(lambda: fields_of(server)["busy"] == "0", message="the end of the job is shown")
        assert server.events("redis.down") == []


def test_a_large_job_is_listed_without_its_arguments(serve: Serve) -> None:
    with serve(CODE) as server:
        server.push("q", {"class": "Large", "args": ["x" * 20_000], "jid": "a"})
        server.push("q", {"class": "Huge", "args": ["x" * 5_000_000], "jid": "b"})
        wait_for(lambda: fields_of(server).get("busy") == "2")
        payloads = [json.loads(work["payload"]) for work in work_of(server)]
        shown = sorted((payload["class"], payload["jid"]) for payload in payloads)
        assert shown == [("Huge", "b"), ("Large", "a")]
        assert all(len(json.dumps(payload)) < 200 for payload in payloads)


def test_a_stopped_server_that_comes_back_is_listed_once(serve: Serve) -> None:
    with serve(CODE) as server:
        lose_lease(server)


def lose_lease(server: ServerProcess) -> tuple[str, str]:
    """Take the lease as if a peer had recovered the server; the identities before and after."""
    identity = identity_of(server)
    with server.redis.pipeline(transaction=True) as pipe:
        pipe.delete(server.keys.lease(identity))
        pipe.set(server.keys.tombstone(identity), 1, ex=60)
        pipe.execute()
    server.wait_for_event("lease.lost")

    def renamed() -> bool:
        names = server.redis.smembers(server.keys.processes)
        return len(names) == 1 and names != {identity.encode()}

    wait_for(renamed, message="the new name alone is listed")
    return identity, identity_of(server)


def test_workers_log_the_new_identity_after_a_lost_lease(serve: Serve) -> None:
    def logged_by(jid: str) -> str:
        server.push("mail", {"class": "send_mail", "args": [], "jid": jid})
        return str(server.wait_for_event("job.done", jid=jid)["identity"])

    # Workers that were idle are replaced, by a fork server from before the loss; later there is a new one.
    short = {"PYWORKERS_SERVER__LEASE": "6"}
    with serve(CODE, **short) as server:
        first = identity_of(server)
        assert logged_by("before") == first
        wait_for(lambda: len(server.tree()) == 1 + 5, message="a fork server and all workers")
        pids = server.tree()
        before, second = lose_lease(server)
        assert before == first
        # Until then they take jobs, too.
        wait_for(lambda: len(pids & server.tree()) == 1, message="of these, the fork server is left")
        assert logged_by("idle") == second
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        wait_for(lambda: not pids & server.tree(), message="the old generation has ended")
        assert logged_by("reloaded") == second
        # Jobs for all workers of a queue: each is killed, and a new one takes its place.
        server.push("q", {"class": "Any", "args": [], "jid": "a"}, {"class": "Any", "args": [], "jid": "b"})
        server.wait_for_notes(2, "start")
        _, third = lose_lease(server)
        server.wait_for_notes(4, "start")
        server.let_go("finish")
        for jid in ("a", "b"):
            assert server.wait_for_event("job.done", jid=jid)["identity"] == third
