"""Worker processes and fork servers under a real server: killed, hung, broken, spoiled, replaced."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyworkers.protocol.retry import MAX_CRASHES
from tests.helpers.processes import children, process_alive
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import stretched, wait_for


def options(folder: Path, text: str) -> tuple[str, str]:
    path = folder / "workers.toml"
    path.write_text(text)
    return "--config", str(path)


def fork_server(server: ServerProcess) -> int:
    """The child of the master that has children. Workers of a dead fork server are its children as well."""
    alive = [pid for pid in children(server.pid) if process_alive(pid)]
    [pid] = alive if len(alive) == 1 else [pid for pid in alive if children(pid)]
    return pid


def workers(server: ServerProcess) -> set[int]:
    return {pid for pid in children(fork_server(server)) if process_alive(pid)}


def wait_for_workers(server: ServerProcess, count: int) -> set[int]:
    wait_for(lambda: len(workers(server)) == count, message=f"{count} workers")
    return workers(server)


def member(server: ServerProcess, name: str, jid: str) -> dict[str, Any]:
    """The envelope of a job in a sorted set."""

    def found() -> list[dict[str, Any]]:
        envelopes = [json.loads(raw) for raw, _ in server.zset(name)]
        return [envelope for envelope in envelopes if envelope["jid"] == jid]

    [envelope] = wait_for(found, message=f"{jid} in {name}")
    return envelope


def counts(server: ServerProcess) -> tuple[int, int]:
    """Processed and failed, once the server has stopped."""
    assert server.stop() == 0
    processed, failed = server.redis.mget(server.keys.stat("processed"), server.keys.stat("failed"))
    return int(processed or 0), int(failed or 0)


@pytest.mark.fault("W1")
def test_a_killed_idle_worker_is_replaced_and_no_job_is_touched(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=2)
    def handle(message):
        note(message.jid)
    """
    with serve(code) as server:
        before = wait_for_workers(server, 2)
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in workers(server), message="it is dead")
        wait_for(lambda: len(workers(server)) == 2, timeout=stretched(1), message="replaced within a second")
        server.wait_for_event("worker.lost")
        for number in range(20):
            server.push("q", job(str(number)))
        server.wait_for_notes(20)
        wait_for(lambda: server.settled("q"), message="settled")
        assert len(server.ledger()) == 20
        assert victim not in {pid for pid, *_ in server.ledger()}
        assert counts(server) == (20, 0)


@pytest.mark.fault("W2")
def test_a_job_whose_worker_is_killed_runs_again_and_is_dead_at_the_third_time(serve: Serve) -> None:
    code = """
    @worker.on_exhausted
    def gone(message, error):
        note("gone", message.jid, type(error).__name__, str(error))

    @worker.job(queue="q", concurrency=2)
    def victim():
        message = current_message()
        note("victim", message.crash_count, message.attempt)
        time.sleep(60)

    @worker.job(queue="q")
    def sibling():
        meet("sibling")
        note("sibling ends")
    """
    with serve(textwrap.dedent(code)) as server:
        server.push("q", job("s", "sibling"), job("v", "victim", retry_count=0, failed_at=1.5))
        server.wait_for_notes(1, "sibling")
        for crash in range(MAX_CRASHES):
            [pid, *_] = server.wait_for_notes(1, "victim", crash, 1)[0]
            os.kill(pid, signal.SIGKILL)
            place = "dead" if crash + 1 == MAX_CRASHES else "retry"
            envelope = member(server, place, "v")
            server.wait_for_event("worker.lost", pid=pid)
            assert envelope.get("crash_count") == (None if place == "dead" else crash + 1)
            assert envelope["retry_count"] == 0
            assert envelope["error_class"] == "WorkerLost"
            assert "the worker was killed by SIGKILL" in envelope["error_message"]
        assert envelope["error_message"].endswith("; dead after 3 crashes")
        [[hook_pid, *words]] = server.wait_for_notes(1, "gone")
        assert words[:3] == ["gone", "v", "WorkerLost"]
        assert "SIGKILL" in words[3]
        assert hook_pid in workers(server)
        server.let_go("sibling")
        server.wait_for_notes(1, "sibling ends")
        wait_for(lambda: server.settled("q"), message="settled")
        assert len([note for note in server.ledger() if note[1] == "sibling"]) == 1
        assert server.zset("retry") == []
        assert counts(server) == (1, 0)
        assert server.redis.get(server.keys.stat("crashed")) == b"3"
        assert "; its peak memory was " in envelope["error_message"]


@pytest.mark.fault("W4")
def test_ways_to_end_a_worker_from_inside(serve: Serve) -> None:
    code = """
    import ctypes

    @worker.job(queue="q", concurrency=2)
    def end(how):
        note(how)
        if how == "exit":
            os._exit(7)
        if how == "abort":
            os.abort()
        if how == "segfault":
            ctypes.string_at(0)
        sys.exit("enough")
    """
    ways = {
        "exit": ("WorkerLost", "the worker exited with status 7"),
        "abort": ("WorkerLost", "the worker was killed by SIGABRT"),
        "segfault": ("WorkerLost", "the worker was killed by SIGSEGV"),
        "sys.exit": ("SystemExit", "enough"),
    }
    with serve(code) as server:
        pids = {}
        for how, (error_class, error_message) in ways.items():
            server.push("q", job(how, "end", how))
            [[pids[how], *_]] = server.wait_for_notes(1, how)
            envelope = member(server, "retry", how)
            # After a second it would end the worker of another one.
            server.redis.delete(server.keys.retry)
            assert envelope["error_class"] == error_class
            assert envelope["error_message"].startswith(error_message)
            crashed = error_class == "WorkerLost"
            assert ("crash_count" in envelope, "retry_count" in envelope) == (crashed, not crashed)
        assert [how for how, pid in pids.items() if process_alive(pid)] == ["sys.exit"]


@pytest.mark.fault("W5")
@pytest.mark.fault("W6")
def test_a_job_that_ignores_its_time_limit_is_killed_with_all_that_it_started(
    serve: Serve, tmp_path: Path
) -> None:
    code = """
    import subprocess

    @worker.job(queue="blocked", concurrency=1, retry=1)
    def block():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
        hidden = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True).pid
        note("child", subprocess.Popen(["sleep", "60"]).pid, time.monotonic(), hidden)
        time.sleep(60)

    @worker.job(queue="blocked")
    def after():
        note("after", time.monotonic())

    @worker.job(queue="loop", concurrency=1, retry=0, timeout=60)
    def loop():
        note("loop", time.monotonic())
        try:
            while True:
                pass
        except JobTimeout as error:
            note("cleaned up", time.monotonic(), str(error))
            raise

    @worker.on_exhausted
    def gone(message, error):
        note("gone", message.jid, type(error).__name__)
    """
    # The limits: the configuration's in one queue, the message's in the other, before the decorator's.
    settings = options(tmp_path, "[queues.blocked]\ntimeout = 0.5\n")
    with serve(code, *settings) as server:
        # A limit begins between the push and what the job notes first: the one is where "not earlier" is
        # measured from, the other is where "not later" is.
        pushed = time.monotonic()
        server.push("loop", job("l", "loop", timeout=1))
        server.push("blocked", job("b", "block"))
        server.push("blocked", job("a", "after"))
        [[pid, _, child, began, hidden]] = server.wait_for_notes(1, "child")
        [[_, _, loop_began]] = server.wait_for_notes(1, "loop")
        [below] = wait_for(lambda: children(hidden), message="a child in its own session has one")

        [[_, _, raised, error]] = server.wait_for_notes(1, "cleaned up")
        assert raised - pushed >= 1
        assert raised - loop_began < 1 + stretched(1)
        assert error == "the job ran longer than 1 s"
        envelope = member(server, "dead", "l")
        assert (envelope["error_class"], envelope["retry_count"]) == ("JobTimeout", 0)
        assert server.wait_for_notes(1, "gone", "l")[0][3] == "JobTimeout"

        [[_, _, works_again]] = server.wait_for_notes(1, "after")
        # 0.5 s, and two more to clean up; then the kill and a new worker within a second.
        assert works_again - pushed >= 2.5
        assert works_again - began < 2.5 + stretched(1)
        family = (pid, child, hidden, below)
        wait_for(lambda: not any(map(process_alive, family)), message="all are dead")
        envelope = member(server, "retry", "b")
        assert (envelope["error_class"], envelope["retry_count"]) == ("JobTimeout", 0)
        assert "crash_count" not in envelope
        assert {event["jid"] for event in server.events("job.timeout")} == {"l", "b"}
        [lost] = server.events("worker.lost")
        assert lost["reason"] == "was killed: its job ran longer than 0.5 s"


@pytest.mark.fault("W7")
def test_an_application_that_cannot_be_imported_ends_the_server_with_3(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    server = ServerProcess(tmp_path, one_redis_url, namespace)
    try:
        server.write_app("import no_such_module_at_all\n")
        server.start(ready=False)
        assert server.wait() == 3
        text = server.log_text()
        assert "Traceback (most recent call last)" in text
        assert "No module named 'no_such_module_at_all'" in text
        assert 'tasks.py"' in text
    finally:
        server.kill()


@pytest.mark.fault("W8")
def test_threads_that_the_application_starts_are_named(serve: Serve) -> None:
    code = """
    import threading
    threading.Thread(target=time.sleep, args=(60,), name="metrics-exporter", daemon=True).start()
    @worker.process("q")
    def handle(message):
        pass
    """
    with serve(code) as server:
        assert server.wait_for_event("app.threads")["threads"] == ["metrics-exporter"]
        assert server.stop() == 0


def test_workers_log_as_the_server_does_if_the_application_configures_logging(serve: Serve) -> None:
    code = """
    import logging.config, structlog
    structlog.configure(processors=[lambda *_: "not ours"])
    logging.config.dictConfig({"version": 1, "root": {"handlers": [], "level": "ERROR"}})

    @worker.process("q", concurrency=1)
    def handle(message):
        logging.getLogger("app").warning("by the library")
        note("ran")
    """
    with serve(code) as server:
        server.push("q", job("a"))
        [[pid, _]] = server.wait_for_notes(1, "ran")
        assert server.wait_for_event("by the library", jid="a")["pid"] == pid
        assert server.wait_for_event("job.done", jid="a")["pid"] == pid


def test_the_first_fork_server_has_nothing_of_the_master_but_its_memory(serve: Serve, tmp_path: Path) -> None:
    code = """
    @worker.process("q", concurrency=1)
    def handle(message):
        pass
    """
    with serve(code) as server:
        pid = fork_server(server)
        assert os.getsid(pid) == pid
        status = Path(f"/proc/{pid}/status").read_text()
        assert int(status.partition("SigBlk:")[2].split()[0], 16) == 0
        # A file for stdout, stderr and the log; the channel; the lifeline, and a pipe to wake itself.
        expected = {"/dev/null": 1, str(tmp_path / "log"): 3, "socket": 1, "pipe": 3}
        # While a worker is forked, there are three more pipes: its own.
        wait_for(lambda: _kinds(pid) == expected, message="it has these and no others")


def _kinds(pid: int) -> Counter[str]:
    """What a process holds open, by kinds; files by their paths."""
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found[str(path.readlink()).partition(":")[0]] += 1
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process name itself")
def test_processes_are_shown_by_what_they_are(serve: Serve) -> None:
    code = """
    @worker.process("quarterly-reports", concurrency=1)
    def handle(message):
        pass
    """
    with serve(code) as server:
        before, [worker] = fork_server(server), wait_for_workers(server, 1)
        assert _title(before) == "fork server"
        wait_for(lambda: _title(worker) == "worker quarterl", message="the worker has named itself")
        os.kill(server.pid, signal.SIGHUP)
        server.wait_for_event("reload.done")
        wait_for(lambda: not process_alive(before))
        wait_for(lambda: _title(fork_server(server)) == "fork server", message="its successor, too")


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().rstrip()


@pytest.mark.fault("W9")
def test_workers_outlive_their_fork_server(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=3)
    def handle(message):
        meet(message.jid)
        note("end", message.jid)
    """
    with serve(textwrap.dedent(code)) as server:
        # Its last crash: a second after another one it would run again, and wait.
        server.push("q", job("finishes"), job("dies", crash_count=MAX_CRASHES - 1))
        [[finishing, *_]] = server.wait_for_notes(1, "finishes")
        [[dying, *_]] = server.wait_for_notes(1, "dies")
        killed = fork_server(server)
        os.kill(killed, signal.SIGKILL)
        server.wait_for_event("forkserver.lost", pid=killed)
        server.wait_for_event("reload.done")
        assert process_alive(finishing)
        assert process_alive(dying)
        # Both have lost their parent. The master gets the reports of their ends nevertheless.
        os.kill(dying, signal.SIGKILL)
        assert "SIGKILL" in member(server, "dead", "dies")["error_message"]
        server.let_go("new")
        server.push("q", job("new"))
        server.wait_for_notes(1, "end", "new")
        server.let_go("finishes")
        server.wait_for_notes(1, "end", "finishes")
        wait_for(lambda: server.settled("q"), message="settled")
        wait_for(lambda: not process_alive(finishing), message="the old worker leaves after its job")
        wait_for_workers(server, 3)
        assert [note[2] for note in server.ledger() if note[1] == "end"] == ["new", "finishes"]


@pytest.mark.fault("W11")
def test_a_worker_that_cannot_start_is_tried_again_ever_later_until_a_reload_mends_it(serve: Serve) -> None:
    code = """
    @worker.on_startup
    def connect():
        note("attempt", time.monotonic())
        if BROKEN:
            raise ConnectionError("no database")

    @worker.process("q", concurrency=1)
    def handle(message):
        note("ran", message.jid)
    """
    with serve("BROKEN = True\n" + textwrap.dedent(code)) as server:
        server.push("q", job("j"))
        server.wait_for_event("manager.state", state="failing")
        times = [note[2] for note in server.wait_for_notes(5, "attempt")]
        delays = [after - before for before, after in itertools.pairwise(times)]
        assert all(delay > least for delay, least in zip(delays, (0.1, 0.2, 0.4, 0.8), strict=False))
        assert server.waiting("q") == 1
        assert "no database" in server.log_text()
        server.write_app("BROKEN = False\n" + textwrap.dedent(code))
        server.signal(signal.SIGHUP)
        server.wait_for_notes(1, "ran", "j", timeout=stretched(5))
        last = server.events("manager.state")[-1]
        assert (last["state"], last["level"]) == ("running", "info")
        [failing] = server.events("manager.state", state="failing")
        assert failing["level"] == "error"


@pytest.mark.fault("W12")
def test_what_a_job_does_to_its_process_does_not_reach_the_next_job(serve: Serve, tmp_path: Path) -> None:
    code = """
    import ctypes, faulthandler, threading
    SIGNALS = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGUSR1, signal.SIGTTIN, signal.SIGCHLD)

    def state():
        umask = os.umask(0)
        os.umask(umask)
        handlers = [getattr(signal.getsignal(number), "__qualname__", signal.getsignal(number))
                    for number in SIGNALS]
        mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return [os.getcwd(), umask, dict(os.environ), str(handlers), mask, sys.stdout.name, sys.stderr.name]

    @worker.on_startup
    def prepare():
        os.chdir(Path(__file__).parent / "home")
        os.environ["FROM_STARTUP"] = "kept"

    @worker.job(queue="q", concurrency=1)
    def look(key):
        note("state", state())
        signal.setitimer(signal.ITIMER_REAL, 0)

    @worker.job(queue="q", timeout=60)
    def limited():
        note("limited")

    @worker.job(queue="q")
    def spoil():
        os.chdir("/")
        os.umask(0o777)
        os.environ["SPOILED"] = "yes"
        os.environ["FROM_STARTUP"] = "changed"
        del os.environ["PATH"]
        os.environ = {"replaced": "altogether"}
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGUSR2])
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        print("spoiled before it is printed", flush=False)
        sys.stdout = sys.stderr = open(os.devnull, "w")
        note("spoiled", state())

    @worker.job(queue="q")
    def library():
        libc = ctypes.CDLL(None)
        libc.chdir(b"/")
        libc.umask(0o777)
        numbers = (ctypes.c_ulong * 16)(1 << signal.SIGALRM - 1)
        libc.pthread_sigmask(signal.SIG_BLOCK, ctypes.byref(numbers), None)
        note("library")

    @worker.job(queue="q")
    def close_stdout():
        sys.stdout.close()
        note("closed")
    """
    (tmp_path / "home").mkdir()
    with serve(code) as server:
        for jid, job_class in enumerate(["look", "spoil", "look", "limited", "look"]):
            server.push("q", job(str(jid), job_class, *["key"] * (job_class == "look")))
        notes = server.wait_for_notes(3, "state")
        [[_, _, spoiled]] = server.wait_for_notes(1, "spoiled")
        [first, second, third] = [note[2] for note in notes]
        # The fault has happened, and not to the environment alone.
        assert [was for was, came in zip(first, spoiled, strict=True) if was == came] == []
        assert first == second == third
        assert first[0] == str(tmp_path / "home")
        assert first[2]["FROM_STARTUP"] == "kept"
        assert len({pid for pid, *_ in server.ledger()}) == 1
        wait_for(lambda: "spoiled before it is printed" in server.log_text(), message="printed")

        # What a library changes without Python is restored within this many jobs.
        server.push("q", job("library", "library"), *[job(f"x{n}", "look", "late") for n in range(60)])
        server.wait_for_notes(1, "library")
        late = [note[2] for note in server.wait_for_notes(63, "state")]
        assert (late[-60] != first, late[-1]) == (True, first)

        [pid] = workers(server)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTTIN)
        wait_for(lambda: "most recent call first" in server.log_text(), message="SIGTTIN shows stacks")
        assert process_alive(pid)

        server.push("q", job("closing", "close_stdout"))
        server.wait_for_event("worker.spoiled", jid=None)
        server.push("q", job("after", "look", "key"))
        [after, *_] = server.wait_for_notes(64, "state")[-1:]
        assert (after[0] != pid, after[2]) == (True, first)
        wait_for(lambda: server.settled("q"), message="settled")
        assert counts(server) == (68, 0)


def test_a_worker_is_replaced_after_so_many_jobs_or_when_it_has_grown(serve: Serve, tmp_path: Path) -> None:
    code = """
    kept = []

    @worker.job(queue="counted", concurrency=1)
    def count():
        note("count")

    @worker.job(queue="grown", concurrency=1)
    def grow(megabytes):
        kept.append(b"x" * (megabytes << 20))
        note("grow", megabytes)

    @worker.on_shutdown
    def leave():
        note("leave")
    """
    settings = options(tmp_path, "[server]\nmax_jobs_per_worker = 5\nmax_memory_mb = 64\n")
    with serve(code, *settings) as server:
        server.push("counted", *[job(str(number), "count") for number in range(17)])
        pids = [pid for pid, *_ in server.wait_for_notes(17, "count")]
        assert list(Counter(pids).values()) == [5, 5, 5, 2]
        for megabytes in (1, 90, 2):
            server.push("grown", job(f"g{megabytes}", "grow", megabytes))
            server.wait_for_notes(1, "grow", megabytes)
            wait_for(lambda: server.settled("grown"), message="settled")
        small, large, after = [pid for pid, *_ in server.wait_for_notes(3, "grow")]
        assert small == large != after
        left = [pid for pid, *_ in server.wait_for_notes(4, "leave")]
        assert sorted(left) == sorted([*set(pids[:15]), large])
        assert server.events("worker.lost") == []
        assert counts(server) == (20, 0)


@pytest.mark.fault("W7")
def test_a_reload_under_load_loses_no_job_and_repeats_none(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=WORKERS)
    def handle(message):
        note("ran", VERSION, message.jid)
        time.sleep(0.006)

    @worker.process(QUEUE, concurrency=1)
    def other(message):
        note("other", QUEUE, message.jid)

    @worker.before_start
    def before():
        note("before_start", VERSION)

    @worker.on_startup
    def startup():
        note("on_startup", VERSION)

    @worker.on_shutdown
    def shutdown():
        note("on_shutdown", VERSION)

    @worker.during_drain
    def drain():
        meet("drain", VERSION)
        note("drained", VERSION)
    """
    versions = [f"VERSION, WORKERS, QUEUE = {v}, {w}, {q!r}\n" for v, w, q in [(1, 3, "old"), (2, 2, "new")]]
    total = 1500
    with serve(versions[0] + textwrap.dedent(code)) as server:
        [[forker, *_]] = server.wait_for_notes(1, "before_start", 1)
        assert forker == fork_server(server)
        assert len(server.wait_for_notes(4, "on_startup", 1)) == 4
        server.push("q", *[job(str(number)) for number in range(total)])
        server.push("old", job("o"))
        server.wait_for_notes(50, "ran", 1)

        def happens_under_load(event: str, *words: Any) -> bool:
            """True once this is logged and noted. However long it takes, jobs wait until then."""
            nonlocal total
            if server.waiting("q") < 500:
                server.push("q", *[job(str(number)) for number in range(total, total + 1000)])
                total += 1000
            return bool(server.events(event) and _notes(server, *words))

        # Code that does not load changes nothing.
        server.write_app("this is no Python")
        server.signal(signal.SIGHUP)
        wait_for(lambda: happens_under_load("reload.failed", "ran", 1), message="the reload fails")
        assert "SyntaxError" in server.events("reload.failed")[0]["traceback"]
        assert fork_server(server) == forker

        server.write_app(versions[1] + textwrap.dedent(code))
        server.signal(signal.SIGHUP)
        wait_for(lambda: happens_under_load("reload.done", "ran", 2), message="the new code runs")
        server.push("new", job("n"))
        server.wait_for_notes(1, "other", "new", "n")
        wait_for(lambda: len(_notes(server, "ran")) >= total, message="all ran")
        wait_for(lambda: server.settled("q", "old", "new"), message="settled")
        ran = [note[3] for note in _notes(server, "ran")]
        assert sorted(ran, key=int) == [str(number) for number in range(total)]
        wait_for(lambda: not process_alive(forker), message="the old fork server is gone")
        new_workers = wait_for_workers(server, 3)
        assert len(server.wait_for_notes(4, "on_shutdown", 1)) == 4
        assert {pid for pid, *_ in _notes(server, "on_startup", 2)} == new_workers
        assert len(_notes(server, "before_start", 2)) == 1

        server.push("old", job("not served any more"))
        server.signal(signal.SIGTERM)
        [[drainer, *_]] = server.wait_for_notes(1, "drain")
        assert drainer not in new_workers | {server.pid, fork_server(server)}
        server.let_go("drain")
        assert server.wait() == 0
        assert [note[1:] for note in _notes(server, "drained")] == [["drained", 2]]
        assert {pid for pid, *_ in _notes(server, "on_shutdown", 2)} == new_workers
        assert server.waiting("old") == 1
        assert int(server.redis.get(server.keys.stat("processed")) or 0) == total + 2
        assert server.events("worker.lost") == []


def _notes(server: ServerProcess, *words: Any) -> list[list[Any]]:
    return [note for note in server.ledger() if note[1 : 1 + len(words)] == list(words)]


def test_two_reloads_in_a_row_end_with_the_newest_code(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=1)
    def handle(message):
        note("ran", VERSION)
    """
    slow = "VERSION = 2\nmeet('loading')\n"
    with serve("VERSION = 1\n" + textwrap.dedent(code)) as server:
        server.push("q", job("first"))
        server.wait_for_notes(1, "ran")
        before = _descriptors(server)
        server.write_app(slow + textwrap.dedent(code))
        server.signal(signal.SIGHUP)
        server.wait_for_notes(1, "loading")
        server.write_app("VERSION = 3\n" + textwrap.dedent(code))
        # The first one is still importing what it has read.
        server.signal(signal.SIGHUP)
        server.let_go("loading")
        server.wait_for_event("reload.done", count=2)

        def newest_ran() -> bool:
            server.push("q", job("j"))
            return ["ran", 3] in [note[1:] for note in server.ledger()]

        wait_for(newest_ran, message="the newest code runs")
        wait_for(lambda: _descriptors(server) <= before, message="the master keeps nothing of the old ones")


def test_a_queue_that_returns_while_its_last_job_runs_has_one_manager_at_a_time(serve: Serve) -> None:
    kept = """
@worker.process("kept")
def keep(message):
    pass
"""
    both = """
@worker.process("returning", concurrency=1)
def handle(message):
    meet(message.jid)
"""
    with serve(kept + both) as server:
        server.push("returning", job("old"))
        server.wait_for_notes(1, "old")
        server.write_app(kept)
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        server.write_app(kept + both + "note('imported')")
        server.signal(signal.SIGHUP)
        server.wait_for_notes(1, "imported")
        importer = Path(f"/proc/{server.events('reload.started')[1]['pid']}/stat")
        wait_for(lambda: " S " in importer.read_text(), message="the fork server has answered")
        server.signal(signal.SIGTTIN)
        server.wait_for_event("server.state", queue="kept")
        server.push("returning", job("new"))
        server.let_go("old")
        server.let_go("new")
        server.wait_for_event("reload.done", count=2)
        server.wait_for_notes(1, "new")
        states = [event["state"] for event in server.events("manager.state", queue="returning")]
        assert states == ["running", "quiet", "stopped", "running"]
        assert server.events("worker.lost") == []


def _descriptors(server: ServerProcess) -> Counter[str]:
    """What the master holds open of each kind; of sockets only the local ones: to Redis there are as many as
    are busy.
    """
    local = {line.split()[6] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, number = str(path.readlink()).partition(":")
            # What the master reads of /proc (the memory of its workers) it soon closes.
            if not kind.startswith("/proc/") and (kind != "socket" or number.strip("[]") in local):
                found[kind] += 1
    return found


def test_sigttin_shows_the_master_and_the_stack_of_a_blocked_worker(serve: Serve) -> None:
    code = """
    @worker.process("q", concurrency=2)
    def handle(message):
        sleep_for_ever()

    def sleep_for_ever():
        note("blocked")
        time.sleep(3600)
    """
    with serve(code) as server:
        server.push("q", job("j"))
        [[pid, *_]] = server.wait_for_notes(1, "blocked")
        server.signal(signal.SIGTTIN)
        state = server.wait_for_event("server.state", queue="q")
        states = state["workers"]
        # Under load the second one may still boot.
        assert len(states) == 2
        assert states[str(pid)] == "busy"
        tasks = server.wait_for_event("server.state", redis_down=False)["tasks"]
        assert tasks["lease"].startswith("Part.run > Part._look_and_pause > ")
        assert tasks["fetcher q"].startswith("Fetcher.run > ")
        assert "object" not in " ".join(tasks.values())
        wait_for(lambda: "in sleep_for_ever" in server.log_text(), message="the stack of the job")
        assert process_alive(pid)


def test_sigttin_names_the_worker_and_its_jobs_before_each_stack_of_all_groups(serve: Serve) -> None:
    code = """
    @worker.job(queue="q", concurrency=1)
    def hangs():
        note("busy")
        time.sleep(3600)

    @worker.job(queue="web", concurrency=2)
    async def waits():
        import asyncio
        note("busy")
        await asyncio.sleep(3600)

    worker.job(queue="idle", concurrency=1)(print)
    """
    with serve(code) as server:
        server.push("idle", job("i", "print"))
        server.wait_for_event("job.done", jid="i")
        server.push("q", job("a", "hangs"))
        server.push("web", job("b", "waits"), job("c", "waits"))
        busy = {note[0] for note in server.wait_for_notes(3, "busy")}
        server.signal(signal.SIGTTIN)
        # One in each process that is busy, and one in the idle one.
        server.wait_for_event("worker.stacks", count=len(busy) + 1)
        wait_for(lambda: "in hangs" in server.log_text(), message="the stack of the job")
        named = {event["pid"]: event["jobs"] for event in server.events("worker.stacks")}
        assert len(named) == len(busy) + 1
        shown = {"jid": "a", "job_class": "hangs", "attempt": 0}
        [(hanging, jobs)] = [(pid, jobs) for pid, jobs in named.items() if shown in jobs]
        assert (hanging in busy, len(jobs)) == (True, 1)
        assert sorted(found["jid"] for jobs in named.values() for found in jobs) == ["a", "b", "c"]
        before, _, after = server.log_text().partition('"jid": "a", "job_class": "hangs", "attempt": 0}]')
        assert ("in hangs" in before, "in hangs" in after) == (False, True)


@pytest.mark.fault("M1")
def test_nothing_of_a_killed_servers_tree_is_left(serve: Serve) -> None:
    code = """
    import subprocess

    @worker.process("q", concurrency=3)
    def handle(message):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if message.jid == "parent":
            note("child", subprocess.Popen(["sleep", "60"]).pid)
        if message.jid == "copy":
            note("child", os.fork() or os.getpid())
        note("busy")
        time.sleep(60)
    """
    with serve(code) as server:
        server.push("q", job("parent"), job("copy"))
        server.wait_for_notes(3, "busy")
        offspring = {note[2] for note in _notes(server, "child")}
        # The fork server, its workers, and what two of them started. The third worker may start last.
        wait_for(lambda: len(server.tree()) == 1 + 3 + 2, message="the tree is complete")
        tree = server.tree()
        assert offspring <= tree
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: not any(map(process_alive, tree)), timeout=stretched(2), message="all are gone")


PRINTS = """
import logging, threading

def some():
    for number in range(100):
        print("printed", number, "by", os.getpid())
        sys.stderr.write("an")
        print("", "error", file=sys.stderr)

@worker.job(queue="q", concurrency=2)
def talk(key):
    threads = [threading.Thread(target=some) for _ in range(2)]
    for thread in threads:
        thread.start()
    print("open", end="", flush=True)
    logging.getLogger("lib").warning("meanwhile")
    some()
    for thread in threads:
        thread.join()
    print("the end", end="")
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_many_print_are_whole_lines(
    serve: Serve, unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with serve(PRINTS) as server:
        for number in range(4):
            server.push("q", job(f"talk {number}", "talk", number))
        for number in range(4):
            server.wait_for_event("job.done", jid=f"talk {number}")
        assert server.stop() == 0
        # Without the log, and a warning of runpy.
        lines = server.log_text().splitlines()
        printed = [line for line in lines if not line.startswith(("{", "<frozen"))]
        kinds = Counter(re.sub("[0-9]+", "N", line) for line in printed)
        assert kinds == {
            "printed N by N": 1196,
            "openprinted N by N": 4,
            "an error": 1200,
            "the end": 4,
        }


LEAVES = """
import ctypes, faulthandler, math, mmap, resource

def tick(*_):
    pass

def interval(kind, number):
    signal.signal(number, tick)
    signal.setitimer(kind, 0.02, 0.02)

def posix():
    signal.signal(signal.SIGUSR1, tick)
    class Event(ctypes.Structure):
        _fields_ = [("value", ctypes.c_void_p), ("number", ctypes.c_int), ("notify", ctypes.c_int),
                    ("rest", ctypes.c_byte * 128)]
    timer = ctypes.c_void_p()
    event = Event(None, signal.SIGUSR1, 0)
    libc = ctypes.CDLL(None)
    assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 20_000_000, 0, 20_000_000), None) == 0

def soon():
    # Not below what was used: the kernel would end the process before the limit is undone.
    return math.ceil(time.process_time() + 0.3)

def zone():
    os.environ["TZ"] = "XXX-7"
    time.tzset()
    del os.environ["TZ"]

def nowhere():
    for fd in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)

LEFT = {
    "real": lambda: interval(signal.ITIMER_REAL, signal.SIGALRM),
    "virtual": lambda: interval(signal.ITIMER_VIRTUAL, signal.SIGVTALRM),
    "prof": lambda: interval(signal.ITIMER_PROF, signal.SIGPROF),
    "posix": posix,
    "stacks": lambda: faulthandler.dump_traceback_later(0.1, exit=True),
    "cpu": lambda: resource.setrlimit(resource.RLIMIT_CPU, (soon(), resource.RLIM_INFINITY)),
    "hard": lambda: resource.setrlimit(resource.RLIMIT_CPU, (soon(),) * 2),
    "files": lambda: resource.prlimit(0, resource.RLIMIT_NOFILE, (3, 99)),
    "memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 29, resource.RLIM_INFINITY)),
    "zone": zone,
    "nowhere": nowhere,
    "priority": lambda: os.nice(1),
    "cpus": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
}

def state():
    return [*time.tzname, os.nice(0), sorted(os.sched_getaffinity(0))]

@worker.job(queue="q", concurrency=1)
def leave(what):
    LEFT[what]()

@worker.job(queue="q")
def work(what, cpu_s):
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass
    os.close(os.open(os.devnull, os.O_RDONLY))
    mmap.mmap(-1, 1 << 30).close()
    print(f"printed after {what}")
    note("worked", what, state())
"""


@pytest.mark.fault("W12")
@pytest.mark.skipif(sys.platform != "linux", reason="a shared library and limits as Linux has them")
def test_what_a_job_leaves_running_ends_and_silences_no_later_job(serve: Serve) -> None:
    with serve(LEAVES) as server:
        for what in (
            "real",
            "virtual",
            "prof",
            "posix",
            "stacks",
            "cpu",
            "hard",
            "files",
            "memory",
            "zone",
            "nowhere",
            "priority",
            "cpus",
        ):
            server.push("q", job(f"leave {what}", "leave", what))
            server.wait_for_event("job.done", jid=f"leave {what}")
            server.push("q", job(f"work {what}", "work", what, 1.5 if what in ("cpu", "hard") else 0.15))
            [[_, _, _, state]] = server.wait_for_notes(1, "worked", what)
            assert state == [*time.tzname, os.nice(0), sorted(os.sched_getaffinity(0))]
        assert server.events("worker.lost") == []
        wait_for(lambda: "printed after nowhere" in server.log_text(), message="heard again")


@pytest.mark.fault("W12")
def test_what_a_job_logs_names_the_job_and_what_it_prints_breaks_nothing(serve: Serve) -> None:
    code = """
    import logging, structlog

    @worker.process("q", concurrency=1)
    def handle(message):
        if message.jid == "print":
            assert sys.stdin.read() == ""
            for _ in range(300):
                print("p" * 999)
            # What is written below Python's buffer comes before what is still in it.
            sys.stdout.flush()
            for fd in (0, 1, 2):
                try:
                    os.write(fd, b"raw " * 100 + b"\\n")
                except OSError:
                    pass
            return
        structlog.get_logger().info("by.structlog", mine=1)
        logging.getLogger("lib").warning("by %s", "logging")
        note(current_message().jid, current_message() is message)

    @worker.on_startup
    def outside():
        try:
            current_message()
        except LookupError:
            note("no job")
    """
    with serve(code) as server:
        server.wait_for_notes(1, "no job")
        server.push("q", job("print"))
        server.wait_for_event("job.done", jid="print")
        server.push("q", job("talk", "Talk", retry_count=2))
        [[pid, *_]] = server.wait_for_notes(1, "talk", True)
        for event in ("by.structlog", "by logging"):
            line = server.wait_for_event(event)
            fields = [line[name] for name in ("jid", "job_class", "queue", "attempt", "pid")]
            assert fields == ["talk", "Talk", "q", 3, pid]
        wait_for(lambda: server.settled("q"), message="settled")
        # Each line goes out by one write, so no line of another process is inside one.
        assert server.log_text().splitlines().count("p" * 999) == 300
        assert counts(server) == (2, 0)


def test_a_server_starts_with_a_log_that_goes_nowhere_and_descriptors_that_others_left_open(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    """As under ``make -j``, which leaves 3 and 4 open."""
    server = ServerProcess(tmp_path, one_redis_url, namespace)
    server.write_app(
        """
        @worker.process("q", concurrency=1)
        def handle(message):
            note("ran")
        """
    )
    inheriting = ("sh", "-c", 'exec "$@" 2>/dev/null 3</dev/null 4</dev/null', "sh")
    try:
        with (tmp_path / "log").open("wb") as log:
            server.wrapper = inheriting
            server.start_with_log(log.fileno())
        server.push("q", job("a"))
        server.wait_for_notes(1, "ran")
        assert server.stop() == 0
    finally:
        server.kill()


def test_an_application_without_stdout_and_stderr_writes_into_no_pipe_of_the_server(serve: Serve) -> None:
    code = """
    os.closerange(1, 3)

    @worker.process("q", concurrency=1)
    def handle(message):
        print("printed")
        os.write(1, b"to stdout")
        os.write(2, b"to stderr")
    """
    with serve(code) as server:
        server.push("q", *[job(str(number)) for number in range(3)])
        wait_for(lambda: server.settled("q"), message="all are done")
        assert server.events("outcomes.invalid") == []
        assert counts(server) == (3, 0)


def test_more_workers_than_the_limit_of_files_allows_start_and_their_jobs_keep_that_limit(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    server = ServerProcess(tmp_path, one_redis_url, namespace)
    server.write_app("""
    import resource
    @worker.process("q", concurrency=25)
    def handle(message):
        note("limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    """)
    with (tmp_path / "log").open("ab") as log:
        server.wrapper = ("sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh")
        server.start_with_log(log.fileno())
    try:
        wait_for(lambda: len(server.tree()) == 26, message="a fork server and 25 workers")
        first = server.tree()
        server.push("q", job("a", "Any"))
        server.wait_for_notes(1, "limit")
        # A reload starts the next fork server after the master has lifted its own limit.
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        wait_for(lambda: len(server.tree() - first) == 26 and not server.tree() & first, message="new ones")
        server.push("q", job("b", "Any"))
        assert [note[2] for note in server.wait_for_notes(2, "limit")] == [64, 64]
        assert server.stop() == 0
        assert server.events("worker.lost") == []
    finally:
        server.kill()


def test_jobs_that_wait_behind_exhaustion_hooks_are_fetched(serve: Serve) -> None:
    code = """
    @worker.on_exhausted
    def exhausted(message, error):
        meet("hooks")

    @worker.job(name="Dies", queue="q", concurrency=1, retry=False)
    def dies():
        meet("die")
        os.kill(os.getpid(), signal.SIGKILL)

    @worker.job(name="Plain", queue="q")
    def plain():
        note("ran")
    """
    with serve(code) as server:
        server.push("q", {**job("dies", "Dies"), "crash_count": 2})
        server.wait_for_notes(1, "die")
        server.push("q", job("plain", "Plain"))
        server.let_go("die")
        server.wait_for_notes(1, "hooks")
        server.let_go("hooks")
        server.wait_for_notes(1, "ran")
        wait_for(lambda: server.settled("q"))


def test_suspects_leave_room_for_other_jobs(serve: Serve) -> None:
    code = """
    @worker.job(name="Any", queue="q", concurrency=2, processes=1, mode="thread")
    def handle(name):
        note("start", name)
        wait_for_file("finish")
    """
    with serve(code) as server:
        server.redis.sadd(server.keys.paused, "q")
        server.wait_for_event("manager.state", state="paused")
        for name in ("suspect1", "suspect2"):
            server.push("q", {**job(name, "Any", name), "crash_count": 1})
        server.push("q", job("plain", "Any", "plain"))
        server.redis.srem(server.keys.paused, "q")
        server.wait_for_notes(1, "start", "plain")
        server.let_go("finish")
        wait_for(lambda: server.settled("q"))


def test_what_the_import_leaves_open_is_named(serve: Serve) -> None:
    code = """
    import asyncio, socket, subprocess
    server = socket.create_server(("127.0.0.1", 0))
    connection = socket.create_connection(server.getsockname())
    random, loop = open("/dev/urandom", "rb"), asyncio.new_event_loop()
    program = subprocess.Popen(["sleep", "60"])
    Path(__file__).with_name("port").write_text(f"{server.getsockname()[1]} {program.pid}")
    @worker.process("q")
    def handle(message):
        pass
    """
    with serve(code) as server:
        opened = server.wait_for_event("app.left_open")["opened"]
        port, pid = (server.folder / "port").read_text().split()
        assert {f"a socket at 127.0.0.1:{port}", f"a socket to 127.0.0.1:{port}"} <= set(opened)
        assert {"an event loop (epoll)", f"the process {pid}"} <= set(opened)
        assert len(opened) == 4
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        assert server.stop() == 0


GEVENT = """
import sys, types
fake = sys.modules["gevent.monkey"] = types.ModuleType("gevent.monkey")
fake.is_module_patched = lambda name: name == "socket"
"""


def test_an_application_that_gevent_has_patched_is_refused(serve: Serve) -> None:
    with serve(HANDLER) as server:
        server.write_app(GEVENT + HANDLER)
        server.signal(signal.SIGHUP)
        assert "is patched by gevent" in server.wait_for_event("reload.failed")["error"]
        assert server.stop() == 0
        assert server.start(ready=False).wait() == 3


HANDLER = """
@worker.process("q")
def handle(message):
    pass
"""
