"""Time, with real servers: on the dot, each slot once whoever is killed, and cheap when nothing is due."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from pyworkers.api import CronSet
from tests.server_process import ServerProcess, serving
from tests.support import free_port, running_server, stretched, wait_for

APP = """
@worker.cron(every="1s")
@worker.job()
def tick():
    about = current_message().data["cron"]
    note("tick", about["slot"], current_message().jid)

@worker.process("late", concurrency=1)
def late(message):
    note("late", message.args[0], time.time())

@worker.process("added", concurrency=1)
def added(message):
    note("added", message.data["cron"]["slot"], message.jid)
"""


@contextlib.contextmanager
def fleet(
    folder: Path,
    url: str,
    namespace: str,
    app: str,
    size: int,
    failpoints: dict[int, str],
    **environment: str,
) -> Iterator[list[ServerProcess]]:
    """So many servers on one Redis, each with a folder of its own; some of them with failpoints."""
    servers = []
    try:
        for number in range(size):
            own = folder / str(number)
            own.mkdir()
            server = ServerProcess(
                own, url, namespace, PYWORKERS_FAILPOINTS=failpoints.get(number, ""), **environment
            )
            server.write_app(app)
            servers.append(server.start(ready=False))
        for server in servers:
            server.wait_for_event("server.started", timeout=60)
        yield servers
    finally:
        for server in servers:
            server.kill()


def notes(servers: list[ServerProcess], word: str) -> list[list[float]]:
    """What the jobs of all servers noted behind this word."""
    return [note[2:] for server in servers for note in server.ledger() if note[1] == word]


def jids_by_slot(servers: list[ServerProcess], word: str) -> dict[float, set[float]]:
    found = defaultdict(set)
    for slot, jid in notes(servers, word):
        found[slot].add(jid)
    return found


def test_eight_servers_fire_each_slot_once_while_some_are_killed(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    # Three die the moment they have fired a slot; one that never gets to fire cannot.
    failpoints = dict.fromkeys((0, 1, 2), "cron_after_slot=kill")
    lease = {"PYWORKERS_SERVER__LEASE": "3"}
    with fleet(tmp_path, one_redis_url, namespace, APP, 8, failpoints, **lease) as servers:
        begin = max(slot for slot, _ in wait_for(lambda: notes(servers, "tick"), 30))

        def ticked(count: int) -> bool:
            return len(jids_by_slot(servers, "tick")) > count

        wait_for(lambda: ticked(3), 30)
        servers[7].signal(signal.SIGKILL)
        entries = CronSet(one_redis_url, namespace=namespace)
        assert [job.name for job in entries] == ["tick"]
        entries.add("new", "every 1s", "New", queue="added")
        wait_for(lambda: len(jids_by_slot(servers, "added")) >= 4, 40, message="the new entry fires")
        entries.remove("new")
        wait_for(lambda: ticked(12), 60)
        # The jobs of those that were killed run, too.
        end = max(slot for slot, _ in notes(servers, "tick"))
        expected = set(range(int(begin), int(end)))
        wait_for(lambda: expected <= jids_by_slot(servers, "tick").keys(), 40, message="no slot is left out")
        for word in ("tick", "added"):
            found = jids_by_slot(servers, word)
            assert {slot: jids for slot, jids in found.items() if len(jids) != 1} == {}
        killed = [number for number, server in enumerate(servers) if server.process.poll() is not None]
        assert 7 in killed and len(killed) > 1, "no failpoint has fired: this has shown nothing"
        slots = sorted(jids_by_slot(servers, "added"))
        assert slots == list(range(int(slots[0]), int(slots[-1]) + 1))


def test_eight_servers_start_a_job_at_its_time_whoever_is_gone_by_then(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    # A poll of somebody every two seconds: without looking ahead, jobs would be late by one on average.
    settings = {"PYWORKERS_SERVER__LEASE": "3", "PYWORKERS_SCHEDULER__POLL_INTERVAL": "4"}
    app = APP.replace('@worker.cron(every="1s")', "")
    with fleet(tmp_path, one_redis_url, namespace, app, 8, {}, **settings) as servers:
        for server in servers:
            wait_for(lambda server=server: server.redis.hlen(server.keys.owners) == 8, 20)
        now = time.time()
        due = [now + 8 + number * 0.2 for number in range(20)]
        jobs = {
            json.dumps({"class": "Late", "queue": "late", "args": [at], "jid": str(at)}): at for at in due
        }
        servers[0].redis.zadd(servers[0].keys.schedule, jobs)
        servers[0].signal(signal.SIGKILL)
        servers[1].signal(signal.SIGTERM)
        wait_for(lambda: len(notes(servers, "late")) >= len(due), 60)
        started = sorted(notes(servers, "late"))
        assert [at for at, _ in started] == due
        lateness = sorted(start - at for at, start in started)
        assert lateness[0] >= 0
        assert lateness[len(due) // 2] < stretched(0.5)  # usually 5 ms


def test_a_scheduled_job_keeps_its_time_across_a_restart(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    with serving(tmp_path, one_redis_url, namespace, APP, PYWORKERS_SCHEDULER__POLL_INTERVAL="30") as server:
        at = time.time() + 8
        job = {"class": "Late", "queue": "late", "args": [at], "jid": "j"}
        server.redis.zadd(server.keys.schedule, {json.dumps(job): at})
        server.signal(signal.SIGKILL)
        server.wait()
        server.start(ready=False)
        server.wait_for_event("server.started", 2)
        assert time.time() < at, "the machine is too slow for this test"
        ((_, _, due, start),) = server.wait_for_notes(1, "late", timeout=30)
        assert due == at
        assert 0 <= start - at < stretched(1)


def test_an_idle_server_asks_redis_as_rarely_as_the_docs_say(tmp_path: Path) -> None:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    app = """
    @worker.cron("@daily")
    @worker.job()
    def nightly(): pass
    """
    with running_server(binary, tmp_path, free_port()) as url, serving(tmp_path, url, "", app) as server:
        connection = redis.Redis.from_url(url)

        def calls(command: str) -> int:
            stats = connection.info("commandstats")
            return int(stats[f"cmdstat_{command}"]["calls"]) if f"cmdstat_{command}" in stats else 0

        wait_for(lambda: calls("zrange") >= 6, message="the first looks and beats are over")
        connection.config_resetstat()
        begin, seen = time.monotonic(), Counter[str]()
        with connection.monitor() as monitor:
            for line in monitor.listen():
                words = line["command"].split()
                seen[" ".join(words[:2])] += 1
                if calls("brpoplpush") >= 3 or time.monotonic() - begin > 40:
                    break
        minutes = (time.monotonic() - begin) / 60
        # What contrib/docs/schedules.md says, and a tick more or less.
        for command, a_minute in (
            ("ZRANGE schedule", 60),
            ("ZRANGE retry", 60),
            ("GET pyworkers:cron-version", 20),
        ):
            assert 0 < seen[command] <= a_minute * minutes * 1.1 + 2, (command, seen[command], minutes)
        everything = sum(
            count["calls"]
            for name, count in connection.info("commandstats").items()
            if not name.startswith(("cmdstat_info", "cmdstat_config", "cmdstat_monitor"))
        )
        assert everything / minutes <= 750
        assert server.process is not None and server.process.poll() is None
