"""The worker in Go with servers in Python: the jobs of a killed one run again on the other."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers import Client
from pyworkers.plugins.batches import new_batch
from pyworkers.store import calls
from pyworkers.store.acl import Role
from pyworkers.store.flow.servers import uninformed
from tests.helpers.acl import url_of
from tests.helpers.replies import as_list, as_texts
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import PATIENCE_S, wait_for

JOBS, CONCURRENCY = 80, 4
APP = """
import redis
db = redis.Redis.from_url(os.environ["REDIS_URL"])

@worker.job(queue="shared", RULES)
def mark(number: int, milliseconds: int) -> int:
    ledger = os.environ["PYWORKERS_REDIS__NAMESPACE"] + "ledger"
    db.rpush(ledger, f"python start {number}")
    time.sleep(milliseconds / 1000)
    db.rpush(ledger, f"python end {number}")
    return number

@worker.job(queue="shared", RULES)
def export(pages: int, milliseconds: int) -> None:
    ledger = os.environ["PYWORKERS_REDIS__NAMESPACE"] + "ledger"
    at = checkpoint(0)
    db.rpush(ledger, f"python start {at.value}")
    for page in range(at.value, pages):
        time.sleep(milliseconds / 1000)
        db.rpush(ledger, f"python end {page}")
        at.save(page + 1)
"""
RULES = {
    "": "concurrency=4",
    "limited": 'concurrency=4, limits=[worker.limit("two", concurrency=2)]',
    "ordered": "ordered=True",
}
OTHER = '\n@worker.job(queue="other")\ndef other() -> None:\n    pass\n'


class Side:
    """Servers of both languages on one namespace, and what their jobs noted."""

    def __init__(self, folder: Path, url: str, namespace: str, program: Path, rules: str) -> None:
        about = {"REDIS_URL": url, "PYWORKERS_REDIS__NAMESPACE": namespace, "PYWORKERS_SERVER__LEASE": "1"}
        self.python = [ServerProcess(folder / name, url, namespace, **about) for name in ("one", "two")]
        self.go: list[subprocess.Popen[bytes]] = []
        self.client = Client(url, namespace=namespace)
        self.redis, self.keys = self.python[0].redis, self.python[0].keys
        self._ledger, self._aside = f"{namespace}ledger", f"{namespace}aside"
        self._command = [str(program), "shared", rules]
        # With the rights that `pyworkers acl --role worker` prints, but for the ledger.
        rights = {"REDIS_URL": url_of(url, Role.WORKER, namespace), "LEDGER_URL": url}
        self._environment, self._log = {**os.environ, **about, **rights}, folder / "go.log"
        for server in self.python:
            server.folder.mkdir()
            server.write_app(APP.replace("RULES", RULES[rules]))

    def start_go(self) -> subprocess.Popen[bytes]:
        """Start a worker in Go, which begins within a moment."""
        with self._log.open("ab") as log:
            self.go.append(subprocess.Popen(self._command, env=self._environment, cwd=os.sep, stderr=log))
        return self.go[-1]

    def start(self, who: str) -> None:
        """Start a worker in Go, or a server in Python."""
        if who == "go":
            self.start_go()
        else:
            self.python[0].start()

    def notes(self, word: str) -> list[list[str]]:
        """Who noted the starts, or ends, of which jobs."""
        found = [note.decode().split() for note in as_list(self.redis.lrange(self._ledger, 0, -1))]
        return [[who, number] for who, noted, number in found if noted == word]

    def enqueue(self, aside: int = 0) -> str:
        """A batch of jobs; its id. No server gets the last ones, which are put aside, before ``check``."""
        with new_batch(self.client, "marks") as batch:
            for number in range(JOBS):
                self.client.enqueue("shared", "mark", [number, 20], track=60)
        for _ in range(aside):
            self.redis.lmove(self.keys.queue("shared"), self._aside, "LEFT", "LEFT")
        return str(batch.id)

    def check(self, batch: str, killed: str) -> None:
        """Each job is done and counts once, and runs once unless it ran at the kill."""
        while self.redis.lmove(self._aside, self.keys.queue("shared"), "LEFT", "LEFT"):
            pass
        facts = wait_for(lambda: self.succeeded(batch))
        assert (facts["total"], facts["done"]) == (str(JOBS), str(JOBS))
        ends = Counter(number for _, number in self.notes("end"))
        assert set(ends) == {str(number) for number in range(JOBS)}
        starts = Counter(number for _, number in self.notes("start"))
        twice = [number for number, runs in starts.items() if runs > 1]
        assert len(twice) <= 2 * CONCURRENCY, twice
        assert {who for who, _ in self.notes("end")} == {"go", "python"}
        first = {number: who for who, number in reversed(self.notes("start"))}
        assert {first[number] for number in twice} <= {killed}
        wait_for(lambda: self.python[0].settled("shared"))
        assert wait_for(lambda: not self.python[0].inprogress("shared"))
        self.check_log()

    def check_log(self) -> None:
        """The worker in Go has reported no error."""
        log = self._log.read_text()
        assert "NOPERM" not in log and "level=ERROR" not in log, log

    def most_at_once(self) -> int:
        """The most jobs that ran at once, without the runs that a kill has ended."""
        notes = [note.decode().split() for note in as_list(self.redis.lrange(self._ledger, 0, -1))]
        running: set[str] = set()
        most = 0
        for place, (who, word, number) in enumerate(notes):
            if word == "end":
                running.discard(number)
            elif [who, "end", number] in notes[place:]:
                running.add(number)
                most = max(most, len(running))
        return most

    def succeeded(self, batch: str) -> dict[str, str]:
        found = as_texts(self.redis.hgetall(self.keys.batch(batch)))
        return found if "success_at" in found else {}

    def end(self) -> None:
        for process in self.go:
            process.kill()
            process.wait()
        for server in self.python:
            server.kill()


@pytest.fixture
def side(
    request: pytest.FixtureRequest, redis_of_clients: str, go_programs: Path, tmp_path: Path
) -> Iterator[Side]:
    rules = getattr(request, "param", "")
    made = Side(tmp_path, redis_of_clients, f"{tmp_path.name}:", go_programs / "worker", rules)
    try:
        yield made
    finally:
        made.end()


@pytest.mark.fault("K1")
def test_python_runs_the_jobs_of_a_worker_in_go_that_was_killed(side: Side) -> None:
    batch = side.enqueue(aside=JOBS // 2)
    killed = side.start_go()
    wait_for(lambda: len(side.notes("end")) > JOBS // 4)
    killed.kill()
    side.python[0].start()
    side.check(batch, "go")


def test_a_worker_in_go_runs_the_jobs_of_a_server_in_python_that_was_killed(side: Side) -> None:
    batch = side.enqueue(aside=JOBS // 2)
    side.python[0].start()
    wait_for(lambda: len(side.notes("end")) > JOBS // 4)
    side.python[0].kill()
    side.start_go()
    # One server in Python returns the jobs to the queue, which it does not serve.
    side.python[1].write_app(OTHER)
    side.python[1].start()
    side.check(batch, "python")


def test_both_share_a_queue_and_stop_without_a_second_run(side: Side) -> None:
    side.python[0].start()
    stopped = side.start_go()
    wait_for(lambda: side.redis.scard(side.keys.processes) == 2)
    batch = side.enqueue()
    wait_for(lambda: {who for who, _ in side.notes("end")} == {"go", "python"})
    about = calls.run(side.redis, uninformed(side.keys, {"shared": ["batches", "tracked"]}))
    assert (about.older, about.foreign, len(about.current)) == ([], [], 2)
    stopped.terminate()
    assert stopped.wait(PATIENCE_S) == 0
    side.check(batch, "")


@pytest.mark.fault("K5")
@pytest.mark.parametrize("side", ["limited"], indirect=True)
def test_k5_the_slots_of_a_killed_worker_in_go_come_back(side: Side) -> None:
    batch = side.enqueue(aside=JOBS // 2)
    killed = side.start_go()
    wait_for(lambda: len(side.notes("end")) > 4)
    killed.kill()
    # Only now: a server that has both slots may keep them to the end.
    side.python[0].start()
    side.check(batch, "go")
    assert side.most_at_once() == 2
    wait_for(lambda: side.redis.zcard(side.keys.limit("two")) == 0)


@pytest.mark.fault("K6")
@pytest.mark.parametrize("side", ["ordered"], indirect=True)
@pytest.mark.parametrize("killed", ["go", "python"])
def test_k6_the_order_is_exact_after_the_active_server_was_killed(side: Side, killed: str) -> None:
    active = side.start_go if killed == "go" else side.python[0].start
    standby = side.python[0].start if killed == "go" else side.start_go
    batch = side.enqueue()
    process = active()
    wait_for(lambda: len(side.notes("end")) > JOBS // 8)
    standby()
    if killed == "python":
        # It recovers the jobs of dead servers.
        side.python[1].write_app(OTHER)
        side.python[1].start()
    wait_for(lambda: side.redis.scard(side.keys.processes) == (2 if killed == "go" else 3))
    assert {who for who, _ in side.notes("end")} == {killed}
    if process is None:
        side.python[0].kill()
    else:
        process.kill()
    facts = wait_for(lambda: side.succeeded(batch))
    assert facts["done"] == str(JOBS)
    assert list(dict.fromkeys(int(number) for _, number in side.notes("end"))) == list(range(JOBS))
    starts = [int(number) for _, number in side.notes("start")]
    assert starts == sorted(starts) and len(starts) <= JOBS + 1
    assert side.most_at_once() == 1
    side.check_log()


@pytest.mark.fault("K7")
@pytest.mark.parametrize("ending", ["kill", "stop"])
@pytest.mark.parametrize("first", ["go", "python"])
def test_k7_a_long_job_continues_in_the_other_language(side: Side, first: str, ending: str) -> None:
    jid = side.client.enqueue("shared", "export", [300, 10])
    checkpoint = side.keys.iteration(jid)
    side.start(first)
    wait_for(lambda: int(as_texts(side.redis.hgetall(checkpoint)).get("c", "0")) > 1)
    if first == "go":
        side.go[0].send_signal(signal.SIGKILL if ending == "kill" else signal.SIGTERM)
        side.go[0].wait(PATIENCE_S)
    elif ending == "kill":
        side.python[0].kill()
    else:
        assert side.python[0].stop() == 0
    state = as_texts(side.redis.hgetall(checkpoint))
    assert (state["ex"], float(state["rt"]) > 0) == ("1", True)
    done = [int(page) for _, page in side.notes("end")]
    if ending == "stop":
        assert int(state["c"]) == len(done)
    # It recovers the jobs of dead servers.
    side.python[1].write_app(OTHER)
    side.python[1].start()
    other = "python" if first == "go" else "go"
    side.start(other)
    wait_for(lambda: side.notes("start")[1:] == [[other, state["c"]]])
    wait_for(lambda: not side.redis.exists(checkpoint), message="it has ended")
    pages = [int(page) for _, page in side.notes("end")]
    assert pages == [*done, *range(int(state["c"]), 300)]
    assert wait_for(lambda: not side.python[0].inprogress("shared"))
    side.check_log()
