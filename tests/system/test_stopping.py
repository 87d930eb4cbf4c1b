"""Stopping: nothing is lost, nothing is left behind, with any signals in any order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.store.scripts import load
from tests.helpers.processes import process_alive
from tests.helpers.proxy import Trap, proxied, script
from tests.helpers.records import job
from tests.helpers.redises import blocked
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import stretched, wait_for

CODE = """
@worker.process("q", concurrency=2)
def handle(message):
    key, seconds = message.args
    note("start", key, message.attempt)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not Path(__file__).with_name("finish").exists():
        time.sleep(0.01)
    note("end", key)
"""


def config(folder: Path, text: str) -> str:
    path = folder / "workers.toml"
    path.write_text(text)
    return str(path)


def clean(server: ServerProcess) -> bool:
    """No key of a living server is left; counts, gauges and the wire version stay; a tombstone has a TTL."""
    counters = re.compile(rb"pyworkers:((stat|runs|durations|gauges):|wire$)")
    left = [
        key
        for key in server.redis.scan_iter(f"{server.keys.namespace}pyworkers:*")
        if not counters.search(key) and (server.redis.ttl(key) < 0 or b":recovered:" not in key)
    ]
    lists = list(server.redis.scan_iter(f"{server.keys.namespace}*:inprogress"))
    return left == [] and lists == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_running_jobs_finish_before_the_server_ends(serve_either: Serve, number: int) -> None:
    with serve_either(CODE) as server:
        server.push("q", job("a", "Any", "a", 60), job("b", "Any", "b", 60), job("c", "Any", "c", 60))
        server.wait_for_notes(2, "start")
        tree = server.tree()
        server.signal(number)
        server.wait_for_event("manager.state", state="quiet")
        server.let_go("finish")
        assert server.wait() == 0
        assert sorted(note[2] for note in server.ledger() if note[1] == "end") == ["a", "b"]
        assert server.waiting("q") == 1
        assert clean(server)
        assert not [pid for pid in tree if process_alive(pid)]


def test_a_server_that_stops_does_not_renew_its_lease_after_it_has_deregistered(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    options = ("--config", config(tmp_path, "[server]\nlease = 1\n"))
    with proxied(redis_url) as proxy, serving(tmp_path, proxy.url, namespace, CODE, *options) as server:
        server.redis.script_load(load("deregister").text)
        trap = proxy.trap(Trap(script("deregister"), action="hold"))
        server.signal(signal.SIGTERM)
        wait_for(lambda: trap.sprung)
        time.sleep(0.6)  # three renewals, while the server waits for this reply
        trap.release()
        assert server.wait() == 0
        assert clean(server)


@pytest.mark.fault("M3")
def test_jobs_past_the_deadline_are_given_back_in_order_and_run_elsewhere(
    serve_either: Serve, tmp_path: Path
) -> None:
    options = ("--config", config(tmp_path, "[server]\nshutdown_timeout = 0.3\n"))
    with serve_either(CODE, *options) as server:
        jobs = [json.dumps(job(key, "Any", key, 60)).encode() for key in "abc"]
        for raw in jobs:
            server.push("q", raw)
        server.wait_for_notes(2, "start")
        pids = {note[0] for note in server.ledger()}
        assert server.stop() == 0
        assert server.redis.lrange(server.keys.queue("q"), 0, -1) == list(reversed(jobs))
        assert clean(server)
        assert not [pid for pid in pids if process_alive(pid)]
        assert server.redis.get(server.keys.stat("processed")) is None
        assert server.redis.get(server.keys.stat("interrupted")) == b"2"

        server.let_go("finish")
        server.start()
        ends = server.wait_for_notes(3, "end")
        assert {note[2] for note in ends} == {"a", "b", "c"}
        assert {note[3] for note in server.ledger() if note[1] == "start"} == {0}
        assert server.stop() == 0


ENDS = """
@worker.middleware
def second_thoughts(message, call_next):
    try:
        return call_next(message)
    except BaseException as error:
        note("passed", message.jid, type(error).__name__)
        raise Retry(delay=0) from error

@worker.process("q", concurrency=5, retry=0)
def handle(message):
    how = message.jid
    if how == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
    note("start", how, message.attempt)
    try:
        while not Path(__file__).with_name("finish").exists():
            try:
                time.sleep(0.01)
            except Exception as error:
                note("swallowed", how)
    except Interrupted as error:
        note("interrupted", how, time.monotonic())
        if how == "ends":
            return
        time.sleep(1)
        note("cleaned up", how)
        raise ValueError from error if how == "fails" else error
"""
TRIES = 5


@contextlib.contextmanager
def stopped_amid_jobs(
    folder: Path, url: str, namespace: str, timeout_s: float, *envelopes: dict[str, Any] | bytes
) -> Iterator[tuple[ServerProcess, float, float]]:
    """A server that was stopped while these jobs ran; when its stop began and ended, in monotonic seconds.

    A worker that is not scheduled in its last seconds is killed, as a deaf one is: then it is tried again.
    """
    with contextlib.ExitStack() as stack:
        for number in range(TRIES):
            place = folder / str(number)
            place.mkdir()
            options = ("--config", config(place, f"[server]\nshutdown_timeout = {timeout_s}\n"))
            server = stack.enter_context(serving(place, url, f"{namespace}{number}:", ENDS, *options))
            server.push("q", *envelopes)
            server.wait_for_notes(len(envelopes), "start")
            began = time.monotonic()
            assert server.stop() == 0
            ended = time.monotonic()
            killed = {event["jid"] for event in server.events("job.interrupted") if event.get("killed")}
            if killed <= {"deaf"}:
                break
        yield server, began, ended


@pytest.mark.fault("M3")
def test_a_job_is_told_two_seconds_before_it_is_given_back(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    names = ["passes", "deaf", "fails", "ends", "again"]
    jobs = {name: json.dumps(job(name, "Any", name, 0)).encode() for name in names}
    with stopped_amid_jobs(tmp_path, redis_url, namespace, 3, *jobs.values()) as (server, began, ended):
        assert 3 <= ended - began < stretched(5)
        notes = server.wait_for_notes(4, "interrupted")
        assert {note[2] for note in notes} == {"passes", "fails", "ends", "again"}
        # The clock of a loop has whole milliseconds.
        assert all(note[3] - began >= 0.99 for note in notes)
        # They had the time to clean up, and nothing in between has swallowed it.
        assert {note[2] for note in server.wait_for_notes(3, "cleaned up")} == {"passes", "fails", "again"}
        assert [note[1:] for note in server.ledger() if note[1] == "swallowed"] == []
        assert ["passed", "fails", "ValueError"] in [note[1:] for note in server.ledger()]

        given_back = [jobs[name] for name in ("again", "fails", "deaf", "passes")]
        assert server.redis.lrange(server.keys.queue("q"), 0, -1) == given_back
        assert server.zset("retry") == server.zset("dead") == []
        assert clean(server)
        assert server.redis.get(server.keys.stat("interrupted")) == b"4"
        assert server.redis.get(server.keys.stat("processed")) == b"1"
        events = server.events("job.interrupted", queue="q", job_class="Any", level="warning")
        assert sorted(event["jid"] for event in events) == ["again", "deaf", "fails", "passes"]
        assert [event["attempt"] for event in events] == [0, 0, 0, 0]
        assert [event["jid"] for event in events if event.get("killed")] == ["deaf"]
        assert server.events("jobs.given_back", jobs=4) != []

        server.let_go("finish")
        server.start()
        server.wait_for_notes(9, "start")
        assert {note[3] for note in server.ledger() if note[1] == "start"} == {0}


def test_a_short_time_to_stop_is_shared_between_ending_and_cleaning_up(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    ends = job("ends", "Any", "ends", 0)
    with stopped_amid_jobs(tmp_path, one_redis_url, namespace, 1.5, ends) as (server, began, _):
        [[_, _, _, interrupted]] = server.wait_for_notes(1, "interrupted")
        # A third of it, in whole milliseconds. It had the time to end: nothing is given back.
        assert interrupted - began >= 0.49
        assert server.events("jobs.given_back") == []
        assert server.waiting("q") == 0


@pytest.mark.fault("M4")
def test_many_signals_are_one_clean_stop(serve: Serve) -> None:
    with serve(CODE) as server:
        server.push("q", job("a", "Any", "a", 60))
        server.wait_for_notes(1, "start")
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
            os.killpg(server.pid, number)
        server.wait_for_event("manager.state", state="quiet")
        server.let_go("finish")
        assert server.wait() == 0
        assert [note[2] for note in server.ledger() if note[1] == "end"] == ["a"]
        assert len(server.events("server.stopping")) == 1
        assert clean(server)


@pytest.mark.fault("M5")
def test_a_quiet_server_fetches_nothing_and_its_jobs_finish(serve_either: Serve) -> None:
    with serve_either(CODE) as server:
        server.push("q", job("a", "Any", "a", 60))
        server.wait_for_notes(1, "start")
        server.signal(signal.SIGTSTP)
        server.wait_for_event("manager.state", state="quiet")
        server.push("q", job("b", "Any", "b", 0))
        server.let_go("finish")
        server.wait_for_event("job.done", jid="a")
        wait_for(lambda: not server.inprogress("q"), message="settled")
        assert server.waiting("q") == 1
        assert server.stop() == 0
        assert [note[2] for note in server.ledger() if note[1] == "start"] == ["a"]


def test_an_idle_server_stops_at_once_though_a_fetch_is_blocked(serve: Serve) -> None:
    with serve(CODE) as server:
        wait_for(lambda: blocked(server.redis), message="a blocking fetch")
        server.signal(signal.SIGTERM)
        assert server.wait(timeout=stretched(2)) == 0


@pytest.mark.fault("M1")
def test_the_jobs_of_a_killed_server_run_on_another_once_each(
    serve_either: Serve, tmp_path: Path, redis_url: str, namespace: str
) -> None:
    short = ("--config", config(tmp_path, "[server]\nlease = 2\n"))
    with serve_either(CODE, *short) as dead:
        dead.push("q", job("a", "Any", "a", 60), job("b", "Any", "b", 60))
        dead.wait_for_notes(2, "start")
        tree = dead.tree()
        os.kill(dead.pid, signal.SIGKILL)
        dead.wait()
        wait_for(lambda: not any(map(process_alive, tree)), timeout=stretched(2), message="its tree is gone")
        assert len(dead.inprogress("q")) == 2
        dead.let_go("finish")
        heir = ServerProcess(tmp_path, redis_url, namespace, *short)
        try:
            heir.start()
            heir.wait_for_event("process.recovered", jobs=2)
            ends = heir.wait_for_notes(2, "end")
            assert {note[2] for note in ends} == {"a", "b"}
            assert {note[3] for note in heir.ledger() if note[1] == "start"} == {0}
            wait_for(lambda: not heir.inprogress("q"), message="settled")
            assert heir.stop() == 0
            assert len(heir.ledger()) == 6
        finally:
            heir.kill()


def test_a_server_that_was_stopped_for_too_long_kills_its_workers_and_goes_on(
    serve: Serve, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    short = ("--config", config(tmp_path, "[server]\nlease = 2\n"))
    with serve(CODE, *short) as sleeper:
        sleeper.push("q", job("a", "Any", "a", 60))
        sleeper.wait_for_notes(1, "start")
        [[first_pid, *_]] = sleeper.ledger()
        os.kill(sleeper.pid, signal.SIGSTOP)
        heir = ServerProcess(tmp_path, one_redis_url, namespace, *short)
        try:
            heir.start()
            heir.wait_for_event("process.recovered", jobs=1)
            heir.wait_for_notes(2, "start", "a")
            os.kill(sleeper.pid, signal.SIGCONT)
            sleeper.wait_for_event("lease.lost")
            wait_for(lambda: not process_alive(first_pid), message="the sleeper's worker is killed")
            sleeper.let_go("finish")
            heir.wait_for_notes(1, "end", "a")
            sleeper.push("q", job("b", "Any", "b", 0), job("c", "Any", "c", 0))
            sleeper.wait_for_notes(3, "end")
            assert heir.stop() == 0
            sleeper.push("q", job("d", "Any", "d", 0))
            sleeper.wait_for_notes(1, "end", "d")
            assert sleeper.stop() == 0
            assert len([note for note in sleeper.ledger() if note[1:3] == ["end", "a"]]) == 1
            assert clean(sleeper)
        finally:
            heir.kill()


def test_a_stop_during_a_reload_starts_nothing_new(serve: Serve) -> None:
    with serve(CODE) as server:
        server.push("q", job("a", "Any", "a", 60))
        server.wait_for_notes(1, "start")
        slow = "\nwait_for_file('load')\n"
        server.write_app(slow + CODE + '\n@worker.process("new")\ndef new(message):\n    note("new")\n')
        server.push("new", job("b", "Any", "b", 0), job("c", "Any", "c", 0))
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.started")
        server.signal(signal.SIGTERM)
        server.wait_for_event("manager.state", state="quiet")
        server.let_go("load")
        server.let_go("finish")
        assert server.wait() == 0
        assert server.waiting("new") == 2
        assert server.events("manager.state", queue="new") == []
        assert clean(server)


def test_signals_before_the_application_is_loaded_take_effect(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    server = ServerProcess(tmp_path, one_redis_url, namespace)
    slow = "\nwait_for_file('load')\n"
    server.write_app(slow + CODE)
    try:
        server.start(ready=False)
        wait_for(server.tree, message="the fork server runs")
        server.signal(signal.SIGHUP)
        server.signal(signal.SIGTSTP)
        server.wait_for_event("server.quiet")
        (tmp_path / "load").touch()
        server.wait_for_event("server.started")
        server.wait_for_event("manager.state", state="quiet")
        server.push("q", job("a", "Any", "a", 0))
        server.wait_for_event("reload.done")
        assert server.stop() == 0
        assert server.ledger() == []
        assert server.waiting("q") == 1
    finally:
        server.kill()


def test_a_stop_starts_no_workers_in_place_of_those_that_it_kills(serve: Serve) -> None:
    code = """
    @worker.on_startup
    def begin():
        note("begin")

    @worker.process("q", concurrency=2)
    def handle(message):
        meet("finish")
    """
    with serve(code) as server:
        server.push("q", job("a", "Any"), job("b", "Any"))
        server.wait_for_notes(2, "finish")
        server.signal(signal.SIGINT)
        server.wait_for_event("server.stopping")
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        assert len([note for note in server.ledger() if note[1] == "begin"]) == 2
        assert server.waiting("q") == 2
        assert clean(server)


def test_a_job_that_comes_while_workers_leave_stays_in_its_queue_although_the_wait_could_not_be_ended(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    """Without the right to unblock a connection, a blocking move would take it for workers that are gone."""
    code = """
    @worker.process("q", concurrency=1)
    def handle(message):
        note("ran")

    @worker.on_shutdown
    def leave():
        note("leaving")
        wait_for_file("leave")
    """
    user = f"stopper{namespace.strip(':')}"
    with redis.Redis.from_url(one_redis_url) as admin:
        admin.acl_setuser(
            user, enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-client", "+client|id"]
        )
        try:
            url = one_redis_url.replace("://", f"://{user}:secret@")
            with serving(tmp_path, url, namespace, code) as server:
                wait_for(lambda: "brpoplpush" in {client["cmd"] for client in admin.client_list()})
                server.signal(signal.SIGTERM)
                server.wait_for_notes(1, "leaving")
                server.push("q", job("a", "Any", "a", 0))
                (tmp_path / "leave").touch()
                assert server.wait() == 0
                assert server.waiting("q") == 1
                assert clean(server)
        finally:
            admin.acl_deluser(user)


def test_a_stop_names_the_workers_whose_shutdown_hook_it_kills(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=1)
    def handle(message):
        note("ran")

    @worker.on_shutdown
    def hang():
        wait_for_file("never")
    """
    with serve(code) as server:
        server.push("q", job("a", "Any"))
        [[pid, _]] = server.wait_for_notes(1, "ran")
        assert server.stop() == 0
        [event] = server.events("worker.overdue")
        assert (event["pid"], event["hook"], event["after_s"]) == (pid, "on_shutdown", 5.0)
        assert not process_alive(pid)


def test_a_stop_names_the_workers_whose_start_up_hook_it_kills(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=1)
    def handle(message):
        pass

    @worker.on_startup
    def hang():
        note("starts")
        wait_for_file("never")
    """
    with serve(code) as server:
        [[pid, _]] = server.wait_for_notes(1, "starts")
        assert server.stop() == 0
        [event] = server.events("worker.overdue")
        assert (event["pid"], event["hook"]) == (pid, "on_startup")
        assert not process_alive(pid)


def test_a_server_started_without_standard_streams_opens_nothing_in_their_place(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    server = ServerProcess(tmp_path, redis_url, namespace)
    server.write_app("""
    @worker.process("q", retry=False)
    def handle(message):
        for pid in ("self", message.args[0]):
            note("streams", *(os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)))
    """)
    closing = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    try:
        server.wrapper = closing
        server.start_with_log(subprocess.DEVNULL)
        server.push("q", job("a", "Any", server.pid))
        notes = server.wait_for_notes(2, "streams")
        assert [note[2:] for note in notes] == [["/dev/null"] * 3] * 2
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_server_leaves_nothing_open_that_python_warns_of(serve_either: Serve) -> None:
    with serve_either(CODE, PYTHONWARNINGS="error") as server:
        assert server.stop() == 0
        assert [line for line in server.log_text().splitlines() if not line.startswith("{")] == []
