"""Time, with real servers: on the dot, each slot once, with servers killed, and cheap when nothing is due."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import redis

from pyworkers import Client
from pyworkers.api import CronSet
from tests.conftest import missing
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import by_load, free_port, running_server, stretched, wait_for

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
    """This many servers on one Redis, each with its own folder; some of them with failpoints."""
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
            server.wait_for_event("server.started")
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


def test_six_servers_fire_each_slot_once_while_some_are_killed(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    # Three die the moment they have fired a slot; one that never gets to fire cannot.
    failpoints = dict.fromkeys((0, 1, 2), "cron_after_slot=kill")
    lease = {"PYWORKERS_SERVER__LEASE": "3"}
    with fleet(tmp_path, one_redis_url, namespace, APP, 6, failpoints, **lease) as servers:
        begin = max(slot for slot, _ in wait_for(lambda: notes(servers, "tick")))

        def ticked(count: int) -> bool:
            return len(jids_by_slot(servers, "tick")) > count

        wait_for(lambda: ticked(3))
        servers[5].signal(signal.SIGKILL)
        entries = CronSet(one_redis_url, namespace=namespace)
        assert [job.name for job in entries] == ["tick"]
        entries.add("new", "every 1s", "New", queue="added")
        wait_for(lambda: len(jids_by_slot(servers, "added")) >= 4, message="the new entry fires")
        entries.remove("new")
        # Any of the servers may fire a slot, by chance never one of the three.
        failing = servers[: len(failpoints)]
        wait_for(lambda: ticked(12) and any(server.exited for server in failing), message="a failpoint fires")
        # The jobs of those that were killed run, too.
        end = max(slot for slot, _ in notes(servers, "tick"))
        expected = set(range(int(begin), int(end)))
        wait_for(lambda: expected <= jids_by_slot(servers, "tick").keys(), message="no slot is left out")

        def is_complete() -> bool:
            slots = sorted(jids_by_slot(servers, "added"))
            return slots == list(range(int(slots[0]), int(slots[-1]) + 1))

        wait_for(is_complete, message="no slot of the new entry, either")
        for word in ("tick", "added"):
            found = jids_by_slot(servers, word)
            assert {slot: jids for slot, jids in found.items() if len(jids) != 1} == {}


def test_four_servers_start_a_job_at_its_time_also_without_the_one_that_noted_it(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    # Without looking ahead, jobs would wait for a poll.
    settings = {"PYWORKERS_SERVER__LEASE": "3", "PYWORKERS_SCHEDULER__POLL_INTERVAL": "60"}
    app = APP.replace('@worker.cron(every="1s")', "")
    with fleet(tmp_path, one_redis_url, namespace, app, 4, {}, **settings) as servers:
        for server in servers:
            wait_for(lambda server=server: server.redis.hlen(server.keys.owners) == 4)  # type: ignore[misc]
        now = time.time()
        due = [now + 8 + number * 0.2 for number in range(20)]
        jobs = {
            json.dumps({"class": "Late", "queue": "late", "args": [at], "jid": str(at)}): at for at in due
        }
        servers[0].redis.zadd(servers[0].keys.schedule, jobs)
        servers[0].signal(signal.SIGKILL)
        servers[1].signal(signal.SIGTERM)
        wait_for(lambda: len(notes(servers, "late")) >= len(due))
        started = sorted(notes(servers, "late"))
        assert [at for at, _ in started] == due
        lateness = sorted(start - at for at, start in started)
        assert lateness[0] >= 0
        assert lateness[len(due) // 2] < stretched(0.5)  # usually 5 ms


def test_a_scheduled_job_keeps_its_time_across_a_restart(serve: Serve) -> None:
    with serve(APP, PYWORKERS_SCHEDULER__POLL_INTERVAL="30") as server:
        at = _due_after_a_restart(server)
        ((*_, start),) = server.wait_for_notes(1, "late", at)
        assert 0 <= start - at < stretched(1)


def _due_after_a_restart(server: ServerProcess) -> float:
    """When a job is due that was scheduled before a restart; it takes as long as the machine needs."""
    for restart in itertools.count(1):
        at = time.time() + 8 * restart
        job = {"class": "Late", "queue": "late", "args": [at], "jid": f"j{restart}"}
        server.redis.zadd(server.keys.schedule, {json.dumps(job): at})
        server.signal(signal.SIGKILL)
        server.wait()
        server.start(ready=False)
        server.wait_for_event("server.started", restart + 1)
        if time.time() < at:
            return at
    raise AssertionError


READS = {"ZRANGE", "SMEMBERS", "ZCARD", "GET", "RPOP", "LLEN"}
IDLE = """
@worker.cron("@daily")
@worker.job(queue="q0")
def nightly(): pass

for number in range(1, {queues}):
    worker.process(f"q{{number}}", concurrency=1)(print)
"""


class Idle:
    """A server with this many queues on its own Redis, in which nothing is to do."""

    def __init__(self, server: ServerProcess, queues: int) -> None:
        self.queues = queues
        self._redis = server.redis
        # Idle is not empty: jobs for later, a paused queue and a cancelled job are nothing to do.
        later = {"{}": time.time() + 3600}
        self._redis.zadd("schedule", later)
        self._redis.zadd("retry", later)
        self._redis.sadd("paused", "other")
        self._redis.zadd("pyworkers:cancelled", {"jid": 1})
        self._read, self._since = -1, 0.0

    def calls(self) -> Counter[str]:
        """How often each command has been sent, also by scripts."""
        stats = self._redis.info("commandstats")
        names = {name: name.removeprefix("cmdstat_").partition("|")[0].upper() for name in stats}
        found = Counter[str]()
        for name, command in names.items():
            found[command] += stats[name]["calls"]
        # Sent by this test alone.
        del found["INFO"]
        return found

    def has_begun(self) -> bool:
        calls = self.calls()
        return calls["BRPOPLPUSH"] >= self.queues and calls["EXISTS"] >= 3

    def has_asked_again(self, before: Counter[str]) -> bool:
        """True once each queue has waited for a job and asks for the next one: 20 s at a time."""
        return self.calls()["BRPOPLPUSH"] - before["BRPOPLPUSH"] >= self.queues

    def rested_s(self) -> float:
        """For how long nothing has been read."""
        calls = self.calls()
        if (read := sum(calls[name] for name in READS)) != self._read:
            self._read, self._since = read, time.monotonic()
        return time.monotonic() - self._since


def test_an_idle_server_sends_as_few_commands_as_the_docs_say(tmp_path: Path) -> None:
    binary = shutil.which("redis-server") or missing("redis-server is not installed")
    with contextlib.ExitStack() as stack:
        idle, servers = [], []
        # More queues than these wait together (tests/system/test_neighbours.py).
        for queues in (1, 4):
            folder = tmp_path / str(queues)
            folder.mkdir()
            url = stack.enter_context(running_server(binary, folder, free_port()))
            server = stack.enter_context(serving(folder, url, "", IDLE.format(queues=queues)))
            servers.append(server)
            idle.append(Idle(server, queues))
        wait_for(lambda: all(one.has_begun() for one in idle), message="all parts have begun")
        # What was changed has been read when nothing is read for longer than any part naps.
        wait_for(lambda: min([one.rested_s() for one in idle]) > 5, message="all was read")
        begin, before = time.monotonic(), [one.calls() for one in idle]
        wait_for(lambda: all(map(Idle.has_asked_again, idle, before)), message="each queue has waited once")
        after = [one.calls() for one in idle]
        minutes = (time.monotonic() - begin) / 60
        for one, earlier, later in zip(idle, before, after, strict=True):
            seen = later - earlier
            # A command more than its rate, for each part that happens to begin and to end with one.
            assert sum(seen.values()) <= 120 * minutes + 8 + one.queues, seen
            assert seen["BRPOPLPUSH"] <= one.queues * (minutes * 60 // 20 + 1)
            assert not seen.keys() & READS, seen
        assert not any(server.exited for server in servers)


def test_a_short_delay_is_kept_to_the_millisecond(serve: Serve, one_redis_url: str, namespace: str) -> None:
    app = """
    @worker.job(queue="late")
    def late(at, again=0):
        note("late", at, time.time())
        if again:
            at, client = time.time() + 0.3, Client(os.environ["TEST_URL"], namespace=os.environ["TEST_NS"])
            client.enqueue_at(at, "late", "late", [at])
    """
    where = {"TEST_URL": one_redis_url, "TEST_NS": namespace}
    with serve(app, **where) as server:
        server.push("late", {"class": "late", "args": [0, 0], "jid": "first"})
        server.wait_for_notes(1, "late")
        with Client(one_redis_url, namespace=namespace) as client:
            for number in range(8):
                at = time.time() + 0.3
                client.enqueue_at(at, "late", "late", [at, 1])
                # The job, and the one that it has scheduled.
                server.wait_for_notes(3 + 2 * number, "late")
        lateness = sorted(start - at for _, _, at, start in server.ledger()[1:])
        assert lateness[0] >= 0
        # Usually 5 ms. They come two at a time, so that a stall delays a few.
        assert lateness[len(lateness) // 2] < by_load(0.05)


def test_where_redis_announces_nothing_servers_look_each_second(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    app = """
    @worker.process("q", concurrency=1)
    def handle(message):
        note("done", message.jid)
    """
    user = f"mute-{namespace.rstrip(':')}"
    with redis.Redis.from_url(one_redis_url) as admin:
        admin.execute_command(
            "ACL", "SETUSER", user, "reset", "on", ">pw", "~*", "&*", "+@all", "-client|tracking"
        )
        parts = urlsplit(one_redis_url)
        url = parts._replace(netloc=f"{user}:pw@{parts.netloc}").geturl()
        with serving(tmp_path, url, namespace, app, direct_url=one_redis_url) as server:
            server.redis.zadd(server.keys.schedule, {'{"class":"A","args":[],"jid":"a","queue":"q"}': 1})
            server.wait_for_notes(1, "done", "a", timeout=stretched(2))
            server.redis.sadd(server.keys.paused, "q")
            server.wait_for_event("manager.state", queue="q", state="paused", timeout=stretched(2))
            assert server.events("redis.refused") == []
