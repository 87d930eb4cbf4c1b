"""The administrator's commands as processes: in a terminal, with very many jobs, and with a real server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers.api import DeadSet, Queue
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.helpers.server_process import Serve
from tests.helpers.support import ROOT, free_port, next_line, running_python, running_server, wait_for
from tests.helpers.terminal import terminal

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?7h\x1b[?25h\x1b[?1049l"
MANY = 50_000
# A command that held 60 bytes of each job would have so many MiB more; it has 0.4 more.
MOST_MB = 3


@pytest.fixture
def where(redis_url: str, namespace: str) -> list[str]:
    return ["--url", redis_url, "--namespace", namespace]


def test_a_command_without_standard_streams_ends_as_usual(
    where: list[str], keys: Keys, db: redis.Redis
) -> None:
    db.sadd(keys.queues, "q")
    command = [sys.executable, "-m", "pyworkers", "stats", *where]
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    assert subprocess.run([*closing, *command], cwd=ROOT, timeout=60).returncode == 0


# In a terminal


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, 2), ("y", 0, 0), ("", 1, 2)])
def test_a_person_is_asked_before_many_jobs_are_deleted(
    answer: str, code: int, left: int, where: list[str], keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1.0, raw_job("b"): 2.0})
    with terminal("dead", "delete", "--class", "Add", *where) as shell:
        shell.wait_for("Delete 2 jobs in dead? [y/N]: ")
        shell.type(f"{answer}\n")
        assert shell.wait() == code
    assert db.zcard(keys.dead) == left


def test_a_person_is_asked_before_a_queue_is_cleared(where: list[str], keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), raw_job("a"))
    with terminal("jobs", "q", "clear", *where) as shell:
        shell.wait_for("Delete all jobs in queue q (1 job)? [y/N]: ")
        shell.type("y\n")
        assert shell.wait() == 0
    assert b"deleted 1 job" in shell.shown


def test_the_question_before_an_empty_place_is_cleared_names_no_number(
    where: list[str], keys: Keys, db: redis.Redis
) -> None:
    with terminal("dead", "clear", *where) as shell:
        shell.wait_for("Delete all jobs in dead (none now)? [y/N]: ")
        shell.type("n\n")
        assert shell.wait() == 1


def test_one_server_is_one_server_in_the_question(where: list[str], keys: Keys, db: redis.Redis) -> None:
    info = json.dumps({"identity": "web:1:a", "concurrency": 1, "queues": ["q"]})
    db.sadd(keys.processes, "web:1:a")
    db.hset(keys.process("web:1:a"), mapping={"info": info, "busy": 0, "beat": time.time()})
    with terminal("quiet", "--all", *where) as shell:
        shell.wait_for("Quiet 1 server? [y/N]: ")
        shell.type("n\n")
        assert shell.wait() == 1
    assert not db.exists(keys.signals("web:1:a"))


def test_ctrl_c_at_the_question_changes_nothing(where: list[str], keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1.0})
    with terminal("dead", "delete", "--all", *where) as shell:
        shell.wait_for("[y/N]: ")
        shell.interrupt()
        assert shell.wait() != 0
    assert db.zcard(keys.dead) == 1


def test_a_list_in_a_terminal_has_no_line_wider_than_it(
    where: list[str], keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {json.dumps({"class": "Add", "jid": "j", "error_message": "語" * 500}).encode(): 1.0})
    with terminal("dead", *where, columns=60) as shell:
        assert shell.wait() == 0
    lines = shell.shown.decode().splitlines()
    assert max(len(line) + line.count("語") for line in lines) in (59, 60)
    assert lines[1].endswith("…")


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", b"\\u8a9e \xe4"), ("ascii", "語 ä".encode())])
def test_what_the_encoding_of_the_output_cannot_carry_is_escaped(
    encoding: str, shown: bytes, where: list[str], keys: Keys, db: redis.Redis
) -> None:
    """For ASCII, click writes UTF-8: it takes that for a locale that was not set."""
    db.zadd(keys.dead, {json.dumps({"class": "語 ä", "jid": "j"}).encode(): 1.0})
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, "LC_ALL": "C"}
    env |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "pyworkers", "dead", *where]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert shown in done.stdout


# top


def test_top_shows_a_frame_and_q_leaves_the_terminal_as_it_was(
    where: list[str], keys: Keys, db: redis.Redis
) -> None:
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), raw_job("a"))
    with terminal("top", "--interval", "0.2", *where) as shell:
        before = shell.modes()
        shell.wait_for("QUEUE  SIZE")
        shell.wait_for("mail")
        assert shell.modes() != before, "keys are read one by one"
        db.lpush(keys.queue("mail"), *(raw_job(f"j{n}") for n in range(7776)))
        shell.wait_for("7,777")
        shell.type("q")
        assert shell.wait() == 0
        assert shell.modes() == before
    assert shell.shown.startswith(ENTER)
    assert shell.shown.endswith(LEAVE)


def test_top_fills_the_screen_that_there_is(where: list[str], keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, *(f"queue{n}" for n in range(100)))
    with terminal("top", "--interval", "600", *where) as shell:
        seen = shell.wait_for("… 82 more")
        assert rows(shell.shown) == 24
        shell.resize(50, 40)
        shell.wait_for("more", after=seen)
        wait_for(lambda: shell.read().endswith(b"\x1b[J"))
        assert rows(shell.shown[seen:]) == 40
        shell.type("q")
        assert shell.wait() == 0


def rows(shown: bytes) -> int:
    """The lowest line that was written to."""
    return max(int(line) for line in re.findall(rb"\x1b\[(\d+);1H", shown))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)]
)
def test_top_leaves_the_terminal_as_it_was_when_it_is_ended(number: int, code: int, where: list[str]) -> None:
    with terminal("top", *where) as shell:
        before = shell.modes()
        shell.wait_for("processed")
        assert shell.process is not None
        shell.process.send_signal(number)
        assert shell.wait() == code
        assert shell.modes() == before
    assert LEAVE in shell.shown


def test_top_gives_the_terminal_back_while_it_is_suspended(where: list[str]) -> None:
    with terminal("top", "--interval", "600", *where) as shell:
        before = shell.modes()
        shell.wait_for("processed")
        shell.type("\x1a")
        seen = shell.wait_for(LEAVE.decode())
        assert shell.process is not None
        status = Path(f"/proc/{shell.process.pid}/stat")
        wait_for(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", message="it is stopped")
        assert shell.modes() == before
        shell.process.send_signal(signal.SIGCONT)
        shell.wait_for("processed", after=seen)
        shell.type("q")
        assert shell.wait() == 0


def test_top_goes_on_when_redis_comes_back(tmp_path: Path, valkey_binary: str) -> None:
    port = free_port()
    with (
        running_server(valkey_binary, tmp_path, port) as url,
        terminal("top", "--interval", "0.2", "--url", url) as shell,
        redis.Redis.from_url(url) as db,
    ):
        shell.wait_for("processed 0")
        db.shutdown(nosave=True)
        shell.wait_for("Retrying: Redis cannot be reached")
        with running_server(valkey_binary, tmp_path, port):
            db.set("stat:processed", 4242)
            shell.wait_for("processed 4,242")
            shell.type("q")
            assert shell.wait() == 0


# Very many jobs


# The kernel's ru_maxrss counts what the parent held at the fork, too; VmHWM begins with the new program.
_MEASURED = """
import atexit, re, sys
from pathlib import Path
from pyworkers.cli import main

def peak_kb():
    return re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]

peak = Path(sys.argv.pop(1))
atexit.register(lambda: peak.write_text(peak_kb()))
main()
"""


def peak_mb(*words: str, out: Path) -> float:
    """Run a command to its end; the most memory that it held, in MiB."""
    peak = out.with_name("peak")
    with out.open("wb") as file:
        command = [sys.executable, "-c", _MEASURED, str(peak), *words]
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env)
    assert done.returncode == 0, out.read_text()[-500:]
    return int(peak.read_text()) / 1024


@pytest.mark.timeout(300)
def test_a_dead_set_of_50000_jobs_is_listed_and_cleared_in_little_memory(
    where: list[str], keys: Keys, db: redis.Redis, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    db.zadd(keys.dead, {raw_job("one"): 1.0})
    least = peak_mb("dead", "list", "--json", *where, out=out)
    _fill(db, lambda pipe, batch: pipe.zadd(keys.dead, {raw_job(f"{n:06}"): n // 3 for n in batch}))
    most = peak_mb("dead", "list", "--limit", "0", "--json", *where, out=out)
    assert out.read_bytes().count(b"\n") == MANY + 1
    most = max(most, peak_mb("dead", "delete", "--error", "none of them", "--yes", *where, out=out))
    most = max(most, peak_mb("dead", "delete", "--class", "Add", "--yes", *where, out=out))
    assert f"deleted {MANY + 1:,} jobs\n`pyworkers undo " in out.read_text()
    assert most - least < MOST_MB, f"{least:.0f} MiB with one job, {most:.0f} with {MANY}"
    _fill(db, lambda pipe, batch: pipe.zadd(keys.dead, {raw_job(f"{n:06}"): n // 3 for n in batch}))
    assert peak_mb("dead", "clear", "--yes", *where, out=out) - least < MOST_MB
    assert out.read_text().startswith(f"deleted {MANY:,} jobs\n`pyworkers undo ")
    assert db.zcard(keys.dead) == 0


@pytest.mark.timeout(300)
def test_a_queue_of_50000_jobs_is_listed_in_little_memory(
    where: list[str], keys: Keys, db: redis.Redis, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    db.lpush(keys.queue("q"), raw_job("one"))
    least = peak_mb("jobs", "q", "list", "--json", *where, out=out)
    _fill(db, lambda pipe, batch: pipe.lpush(keys.queue("q"), *(raw_job(f"{n:06}") for n in batch)))
    most = peak_mb("jobs", "q", "--limit", "0", "--json", *where, out=out)
    assert out.read_bytes().count(b"\n") == MANY + 1
    assert most - least < MOST_MB, f"{least:.0f} MiB with one job, {most:.0f} with {MANY}"


def _fill(db: redis.Redis, add: Callable[[Any, range], object]) -> None:
    for start in range(0, MANY, 5000):
        with db.pipeline(transaction=False) as pipe:
            add(pipe, range(start, start + 5000))
            pipe.execute()


def test_only_two_commands_ask_for_the_names_of_keys(tmp_path: Path, valkey_binary: str) -> None:
    with running_server(valkey_binary, tmp_path, free_port()) as url, redis.Redis.from_url(url) as db:
        db.zadd("dead", {raw_job("a"): time.time(), raw_job("b"): time.time()})
        db.lpush("queue:q", raw_job("c"))
        db.sadd("queues", "q")

        def command(*words: str) -> None:
            done = CliRunner().invoke(main, words)
            assert done.exit_code == 0, done.output

        for line in (
            "stats --history 3", "jobs q", "jobs q show c", "jobs q kill c", "scheduled", "retries",
            "dead", "dead show a", "dead retry --class Add --yes", "jobs q delete --all --yes",
            "dead clear --yes", "processes", "workers", "pause q", "resume q",
            "stop --all --yes",
        ):  # fmt: skip
            command(*line.split(), "--url", url)
        used = {name.removeprefix("cmdstat_") for name in db.info("commandstats")}
        # But for two, once, because nothing else tells of the lists of Go processes.
        for number, line in enumerate(("queues", "top --once"), 1):
            command(*line.split(), "--url", url)
            assert db.info("commandstats")["cmdstat_scan"]["calls"] == number
    assert {"zrem", "lrem", "unlink", "evalsha"} <= used, "the commands did something"
    assert used & {"keys", "scan", "randomkey", "flushall", "flushdb"} == set()


# While jobs come and go


def test_a_queue_is_read_whole_while_others_push_and_pop(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    """Two programs push on the left and pop on the right all the time; what they leave alone is seen once."""
    stays = [f"stays{n:04}" for n in range(4000)]
    db.lpush(keys.queue("q"), *(raw_job(f"old{n}") for n in range(20_000)))
    db.lpush(keys.queue("q"), *map(raw_job, stays))
    code = """
        import redis, sys
        url, key, raw, side = sys.argv[1:]
        db = redis.Redis.from_url(url)
        print("ready")
        for n in range(1000):
            db.lpush(key, *(raw % f"{side}{n}-{i}" for i in range(10)))
            db.rpop(key, 9)
        """
    raw = raw_job("JID").decode().replace("JID", "%s")
    args = (redis_url, keys.queue("q"), raw)
    with running_python(code, *args, "a") as one, running_python(code, *args, "b") as other:
        assert (next_line(one), next_line(other)) == ("ready", "ready")
        seen = [waiting.jid for waiting in Queue("q", RedisConfig(url=redis_url, namespace=namespace))]
    assert [jid for jid in seen if jid.startswith("stays")] == stays[::-1]
    assert len(seen) == len(set(seen))


def test_two_commands_retry_the_same_dead_jobs_at_once(
    where: list[str], redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job(f"{n:04}"): n for n in range(3000)})
    command = [sys.executable, "-m", "pyworkers", "dead", "retry", "--all", "--yes", "--json", *where]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)})
        for _ in range(2)
    ]
    results = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    assert sum(result["done"] for result in results) == 3000
    assert all(result["done"] + result["gone"] == result["selected"] for result in results)
    moved = sorted(json.loads(raw)["jid"] for raw in db.lrange(keys.queue("q"), 0, -1))
    assert moved == [f"{n:04}" for n in range(3000)]
    assert DeadSet(redis_url, namespace=namespace).size == 0


# Beside a real server

APP = """
@worker.process("q", concurrency=2)
def handle(message):
    note("begin", message.jid)
    while Path(message.args[0]).exists():
        time.sleep(0.01)
    note("end", message.jid)
"""


def test_a_server_is_watched_paused_quieted_and_stopped(
    serve_either: Serve, where: list[str], keys: Keys, db: redis.Redis, tmp_path: Path
) -> None:
    def cli(*words: str) -> str:
        done = CliRunner().invoke(main, [*words, *where], catch_exceptions=False)
        assert (done.exit_code, done.stderr) == (0, "")
        return done.stdout

    def shown(command: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(cli(command, "--json"))
        return found

    gate = tmp_path / "gate"
    gate.touch()
    with serve_either(APP) as server:
        server.push("q", {"class": "Wait", "args": [str(gate)], "jid": "first", "queue": "q"})
        server.wait_for_notes(1, "begin", "first")
        [work] = wait_for(lambda: shown("workers"), message="the running job is listed")
        [process] = shown("processes")
        assert (work["jid"], work["identity"]) == ("first", process["identity"])
        assert (process["pid"], process["busy"], process["queues"]) == (server.pid, 1, ["q"])
        [queue] = shown("queues")
        assert (queue["in_progress"], queue["paused"], queue["served"]) == (1, False, True)
        assert "first" in cli("top", "--once")

        cli("pause", "q")
        server.wait_for_event("manager.state", state="paused")
        server.push("q", {"class": "Wait", "args": ["no"], "jid": "second", "queue": "q"})
        assert shown("queues")[0]["paused"] is True
        cli("resume", "q")
        server.wait_for_notes(1, "end", "second")

        cli("quiet", process["identity"])
        wait_for(lambda: shown("processes")[0]["quiet"], message="the server is quiet")
        assert shown("queues")[0]["served"] is False
        gate.unlink()
        cli("stop", "--all", "--yes")
        assert server.wait() == 0
    assert shown("processes") == shown("workers") == []
