"""Programs that jobs start: they end with a job that was asked to end, and with no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Client, programs
from tests.helpers.processes import process_alive
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import by_load, stretched, wait_for

# A program notes its pid itself, so that a test knows that it has run.
CODE = """
from subprocess import DEVNULL, Popen

program = Path(__file__).with_name("program")
program.write_text(f'#!/bin/sh\\necho "[$$, \\\\"$1\\\\"]" >> "{ledger}"\\nexec sleep 301\\n')
program.chmod(0o755)

def daemon(then):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            then()
        os._exit(0)
    os.wait()

def sleep(name):
    note(name)
    time.sleep(301)

STARTS = {
    "child": lambda name: Popen([program, name]),
    "session": lambda name: Popen([program, name], start_new_session=True),
    "pipeline": lambda name: Popen(f"{program} {name} | cat", shell=True),
    "background": lambda name: Popen(f"{program} {name} &", shell=True).wait(),
    "bare": lambda name: Popen(f"setsid {program} {name} &", shell=True, env={"PATH": os.defpath}).wait(),
    "daemon": lambda name: daemon(lambda: os.execv(program, [program, name])),
    "fork": lambda name: daemon(lambda: sleep(name)),
}

@worker.on_startup
def startup():
    STARTS["child"]("startup")

def start_all(name):
    for start in STARTS.values():
        start(name)

@worker.job(queue="q", concurrency=1)
def start(name):
    note("worker")
    start_all(name)

@worker.job(queue="q")
def hang(name="", how="raise"):
    note("worker")
    if how == "deaf":
        # First of all: on a slow machine the limit expires while programs start.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGURG])
    try:
        if name:
            start_all(name)
        note("hang")
        time.sleep(301)
    except BaseException as error:
        note("asked", type(error).__name__)
        if how == "raise":
            raise
"""
KINDS = 7


def run(server: ServerProcess, count: int, job_class: str, *args: Any, **fields: Any) -> int:
    """The pid of the worker that runs the job, which is the ``count``th."""
    server.push("q", job(job_class, job_class, *args, **fields))
    pid: int = server.wait_for_notes(count, "worker")[-1][0]
    return pid


def started(server: ServerProcess, name: str, count: int = KINDS) -> list[int]:
    found = [pid for pid, *_ in server.wait_for_notes(count, name)]
    # Ages are known to 10 ms: what starts in the moment in which a job begins counts as the job's.
    now = programs.tick(0)
    wait_for(lambda: programs.tick(0) > now + 1, message="they are older than the next job")
    return found


def all_dead(pids: list[int]) -> None:
    wait_for(lambda: not any(map(process_alive, pids)), message=f"all of {pids} are dead")


def all_alive(pids: list[int]) -> bool:
    return all(map(process_alive, pids))


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with these jobs; what is left of their programs is killed after the test."""
    (tmp_path / "workers.toml").write_text("[server]\nshutdown_timeout = 3\n")
    with serve(CODE, "--config", str(tmp_path / "workers.toml")) as server:
        try:
            yield server
        finally:
            for pid in {pid for pid, *_ in server.ledger()}:
                if process_alive(pid):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.fault("W6")
@pytest.mark.parametrize(
    ("how", "error"), [("raise", "JobTimeout"), ("catch", "JobTimeout"), ("raise", "JobCancelled")]
)
def test_programs_end_with_a_job_that_was_asked_to_end(server: ServerProcess, how: str, error: str) -> None:
    before = run(server, 1, "start", "older")
    older = started(server, "older")
    [startup] = started(server, "startup", 1)
    # Its programs start before it expires.
    limit = {"timeout": stretched(1)} if error == "JobTimeout" else {}
    assert run(server, 2, "hang", "mine", how, **limit) == before
    mine = started(server, "mine")
    assert all_alive([startup, *older, *mine])
    server.wait_for_notes(1, "hang")
    if not limit:
        url, namespace = server.url, server.keys.namespace
        Client(url, namespace=namespace).cancel("hang")
    server.wait_for_notes(1, "asked", error)
    wait_for(lambda: not server.inprogress("q"), message="settled")
    # Not a moment later: the next attempt must not meet them.
    assert [pid for pid in mine if process_alive(pid)] == []
    assert set(server.wait_for_event("programs.killed", jid="hang")["pids"]) >= set(mine)
    assert server.events("worker.lost") == []
    # Another worker goes on; what had left the first one's session goes on as well.
    assert run(server, 3, "hang") != before
    all_dead([before, startup])
    in_its_session = ("child", "pipeline", "background")
    wait_for(lambda: sum(map(process_alive, older)) == KINDS - len(in_its_session), message="the others")


def test_a_job_without_programs_leaves_its_worker_and_older_programs_alone(server: ServerProcess) -> None:
    pid = run(server, 1, "start", "older")
    older = started(server, "older") + started(server, "startup", 1)
    assert run(server, 2, "hang", timeout=3) == pid
    server.wait_for_notes(1, "asked", "JobTimeout")
    assert run(server, 3, "hang") == pid
    assert all_alive(older)
    assert server.events("programs.killed") == []


@pytest.mark.fault("W5")
def test_programs_end_with_a_job_that_has_to_be_killed(server: ServerProcess) -> None:
    pid = run(server, 1, "start", "older")
    older = started(server, "older")
    assert run(server, 2, "hang", "mine", "deaf", timeout=by_load(4)) == pid
    mine = started(server, "mine")
    server.wait_for_event("worker.lost", pid=pid)
    all_dead(mine)
    # What an earlier job has started stays if it has both left the worker's session and lost its parent.
    wait_for(lambda: sum(map(process_alive, older)) == len(("bare", "daemon", "fork")), message="the others")


@pytest.mark.fault("M3")
@pytest.mark.parametrize("how", ["raise", "deaf"])
def test_programs_end_with_a_job_that_a_stop_interrupts(server: ServerProcess, how: str) -> None:
    run(server, 1, "hang", "mine", how)
    mine = started(server, "mine")
    server.wait_for_notes(1, "hang")
    assert server.stop() == 0
    all_dead(mine)
    assert server.waiting("q") == 1


SHARES = """
import multiprocessing
from multiprocessing.shared_memory import SharedMemory

@worker.job(queue="q", concurrency=2, retry=False)
def share(how):
    if how == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGURG])
    block = SharedMemory(create=True, size=100)
    spawned = multiprocessing.get_context("spawn")
    locks.append(spawned.Lock())
    note("shared", how, f"/dev/shm/{block.name}", f"/dev/shm/sem.{locks[-1]._semlock.name[1:]}")
    if how == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if how != "return":
        time.sleep(301)

locks = []
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="shared memory is in no folder here")
def test_shared_memory_and_semaphores_are_freed_with_the_process_that_has_them(serve: Serve) -> None:
    endings = {"crash": {}, "limit": {"timeout": stretched(1)}, "deaf": {"timeout": by_load(1)}, "return": {}}
    with serve(SHARES) as server:
        for how, fields in endings.items():
            server.push("q", job(how, "share", how, **fields))
            server.wait_for_notes(1, "shared", how)
        wait_for(lambda: not server.inprogress("q"), message="all have ended")
        assert server.stop() == 0
        paths = {Path(name) for _, _, _, *names in server.wait_for_notes(4, "shared") for name in names}
        wait_for(lambda: not any(path.exists() for path in paths), message="all are freed")


FORKS = """
import multiprocessing

def ignores(*_):
    pass

@worker.job(queue="web", retry=0)
def forks(own):
    before = signal.getsignal(signal.SIGTERM)
    if own:
        signal.signal(signal.SIGTERM, ignores)
    multiprocessing.set_start_method("fork", force=True)
    process = multiprocessing.Process(target=time.sleep, args=(1 if own else 300,))
    process.start()
    process.terminate()
    process.join(30)
    mask = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
    note("ended", process.exitcode, mask)
    process.kill()
    if own:
        signal.signal(signal.SIGTERM, before)
"""


@pytest.mark.parametrize("mode", ["process", "async", "thread"])
def test_a_process_that_a_job_forks_ends_at_sigterm(serve: Serve, mode: str) -> None:
    """Else ``multiprocessing.Pool`` may hang at its end. The signal counts also before the process runs."""
    group = f'worker.group("web", queues=["web"], concurrency=1, mode="{mode}")\n'
    with serve(FORKS + group) as server:
        server.push("web", job("a", "forks", False))
        [note] = server.wait_for_notes(1, "ended")
        assert note[2:] == [-signal.SIGTERM, []]
        wait_for(lambda: server.settled("web"), message="it is settled")
        assert server.stop() == 0


def test_a_process_that_a_job_forks_keeps_the_handler_of_the_job(serve: Serve) -> None:
    with serve(FORKS) as server:
        server.push("web", job("a", "forks", True))
        [note] = server.wait_for_notes(1, "ended")
        assert note[2:] == [0, []]
        assert server.stop() == 0
