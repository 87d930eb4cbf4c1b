"""Limits over all servers, by real servers with real workers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Client
from pyworkers.failpoints import LOG_VARIABLE, VARIABLE
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import wait_for

CODE = """
stripe = worker.limit("stripe", rate=10, per=1.0)
erp = worker.limit("erp", concurrency=2)
fair = worker.limit("tenant", concurrency=1, by=lambda tenant, *_: tenant)

@worker.job(queue="q", concurrency=4, limits=[stripe])
def charge(number):
    note("charge", number, time.time())

@worker.job(queue="q", limits=[erp])
def book(number):
    note("begin", number, time.time())
    wait_for_file("go")
    time.sleep(0.05)
    note("end", number, time.time())

@worker.job(queue="q")
def free(number):
    note("free", number)

@worker.job(queue="q", limits=[fair])
def tenant(name, file):
    note("begin", name)
    wait_for_file(file)
    note("end", name)

@worker.job(queue="q", retry=0, limits=[worker.limit("broken", concurrency=1, by=lambda a: a["x"])])
def broken(a):
    note("broken", a)
"""


def job(name: str, *args: object, jid: str = "") -> dict[str, object]:
    return {"class": name, "args": list(args), "jid": jid or f"{name}-{args}", "queue": "q"}


def most_in_a_second(times: list[float]) -> int:
    """The largest number of jobs that began within a second, as their limit counts it.

    A job begins up to a quarter of a second after the limit let it start, so the windows are shorter by this.
    On a busy machine there are fewer jobs than the rate allows.
    """
    times = sorted(times)
    return max(sum(start <= at < start + 0.75 for at in times) for start in times)


def most_at_once(notes: list[list[Any]]) -> int:
    """The largest number of jobs that have begun and not ended, by notes of beginnings and ends."""
    running = peak = 0
    for _, step in sorted((at, 1 if word == "begin" else -1) for _, word, _, at in notes):
        running += step
        peak = max(peak, running)
    return peak


@contextmanager
def two_servers(serve: Serve) -> Iterator[ServerProcess]:
    with serve(CODE) as first, serve(CODE):
        first.wait_for_event("server.started", 2)
        yield first


def test_sixty_jobs_start_at_ten_a_second_over_two_servers(serve: Serve) -> None:
    with two_servers(serve) as server:
        server.push("q", *(job("charge", n) for n in range(60)))
        notes = server.wait_for_notes(60, "charge")
        wait_for(lambda: server.settled("q"))
        times = [at for *_, at in notes]
        assert 5 <= most_in_a_second(times) <= 10
        assert (len(notes), len({number for _, _, number, _ in notes})) == (60, 60)
        # Each of them was handed out twice at most, and once more to start.
        assert len(server.events("job.done")) == 60


def test_others_of_the_queue_are_not_delayed(serve: Serve) -> None:
    with serve(CODE) as server:
        server.push("q", *(job("free", n) for n in range(3)), *(job("charge", n) for n in range(40)))
        server.wait_for_notes(3, "free")
        words = [word for _, word, *_ in server.ledger()]
        last = max(place for place, word in enumerate(words) if word == "free")
        # The last turn is three seconds after the first. What is noted meanwhile comes later in the ledger.
        assert words[:last].count("charge") < 40
        server.wait_for_notes(40, "charge")


def test_a_thousand_limited_jobs_cost_two_starts_each_at_most(serve: Serve) -> None:
    code = """
@worker.job(queue="q", concurrency=4, limits=[worker.limit("turns", rate=250)])
def turn(number):
    note("turn", number)

@worker.job(queue="q", limits=[worker.limit("slots", concurrency=2)])
def slot(number):
    note("slot", number)
"""
    with serve(code) as server:
        for start in range(0, 1000, 250):
            numbers = range(start, start + 250)
            server.push("q", *(job(name, n, jid=f"{name}{n}") for n in numbers for name in ("turn", "slot")))
        server.wait_for_notes(1000, "turn")
        server.wait_for_notes(1000, "slot")
        wait_for(lambda: server.settled("q"))
        # A job that is put off is handed to a worker once more.
        times = Counter(event["jid"] for event in server.events("job.limited"))
        assert len(times) >= 500
        # But one that a stall delays for a second on its way has lost its place (LATE_S of ask.lua).
        assert times.total() - len(times) <= 10


def test_so_many_jobs_run_at_once_over_two_servers(serve: Serve) -> None:
    with two_servers(serve) as server:
        server.push("q", *(job("book", n) for n in range(40)))
        server.wait_for_notes(2, "begin")
        server.let_go("go")
        server.wait_for_notes(40, "end")
        wait_for(lambda: server.settled("q"))
        notes = [row for row in server.ledger() if row[1] in ("begin", "end")]
        assert most_at_once(notes) == 2
        assert len(notes) == 80
        assert server.redis.exists(server.keys.limit("erp"), server.keys.limit_waiting("erp")) == 0


def test_a_function_of_a_limit_that_raises_fails_its_job(serve: Serve) -> None:
    with serve(CODE) as server:
        server.push("q", job("broken", 7), job("broken", {"x": 1}))
        server.wait_for_notes(1, "broken", {"x": 1})
        wait_for(lambda: len(server.zset("dead")) == 1)
        assert b"TypeError" in server.zset("dead")[0][0]


QUEUES = """
@worker.job(queue="pay", concurrency=4)
def pay(number):
    note("begin", number, time.time())
    wait_for_file("go")
    time.sleep(0.01)
    note("end", number, time.time())

@worker.job(queue="other")
def other(number):
    note("other", number)
"""


@contextmanager
def limited_queue(serve: Serve, folder: Path, text: str) -> Iterator[ServerProcess]:
    """Two servers whose configuration has these lines for the queue ``pay``."""
    (folder / "workers.toml").write_text(f"[server]\nlease = 2\n[queues.pay]\n{text}\n")
    options = ("--config", str(folder / "workers.toml"))
    with serve(QUEUES, *options) as first, serve(QUEUES, *options):
        first.wait_for_event("server.started", 2)
        yield first


def test_a_queue_with_a_rate_starts_so_many_over_two_servers(serve: Serve, tmp_path: Path) -> None:
    with limited_queue(serve, tmp_path, 'rate = "10/s"') as server:
        server.let_go("go")
        server.push("pay", *({"class": "pay", "args": [n], "jid": f"j{n}"} for n in range(35)))
        notes = server.wait_for_notes(35, "begin")
        assert 5 <= most_in_a_second([at for *_, at in notes]) <= 10
        # Jobs that come later to an empty queue start at once, or at their turn.
        wait_for(lambda: server.settled("pay"))
        server.push("pay", *({"class": "pay", "args": [n], "jid": f"j{n}"} for n in range(35, 47)))
        notes = server.wait_for_notes(47, "begin")
        assert 5 <= most_in_a_second([at for *_, at in notes]) <= 10
        assert server.zset("schedule") == []


def test_a_queue_runs_so_many_jobs_at_once_over_two_servers(serve: Serve, tmp_path: Path) -> None:
    with limited_queue(serve, tmp_path, "max_running = 3") as server:
        server.push("pay", *({"class": "pay", "args": [n], "jid": f"j{n}"} for n in range(60)))
        server.wait_for_notes(3, "begin")
        server.let_go("go")
        server.wait_for_notes(60, "end")
        assert most_at_once([row for row in server.ledger() if row[1] in ("begin", "end")]) == 3
        wait_for(lambda: server.settled("pay"))


def test_a_queue_with_limits_shares_workers_with_others(serve: Serve, tmp_path: Path) -> None:
    text = 'rate = "2/s"\nmax_running = 1\n[groups.all]\nqueues = ["pay", "other"]\nconcurrency = 2'
    with limited_queue(serve, tmp_path, text) as server:
        server.let_go("go")
        server.push("pay", *({"class": "pay", "args": [n], "jid": f"j{n}"} for n in range(4)))
        server.push("other", *({"class": "other", "args": [n], "jid": f"o{n}"} for n in range(20)))
        server.wait_for_notes(20, "other")
        notes = server.wait_for_notes(4, "begin")
        assert most_in_a_second([at for *_, at in notes]) <= 2


SLOW = """
@worker.job(queue="pay", concurrency=2)
def pay(number):
    note("begin", number, time.time())

@worker.job(queue="q", concurrency=1, limits=[worker.limit("slow", rate=2)])
def charge(number):
    note("begin", number, time.time())
"""


@pytest.mark.parametrize(("queue", "job_class", "failpoint"), [
    ("pay", "pay", "job_start=sleep:0.5*2"),
    ("q", "charge", "job_start=sleep:0.3*4"),
])  # fmt: skip
def test_a_window_begins_when_its_jobs_have_started(
    serve: Serve, tmp_path: Path, queue: str, job_class: str, failpoint: str
) -> None:
    """The workers are slow with the first jobs: the later ones are faster, and would come too close."""
    (tmp_path / "workers.toml").write_text('[queues.pay]\nrate = "2/s"\n')
    environment = {VARIABLE: failpoint, LOG_VARIABLE: str(tmp_path / "fired")}
    with serve(SLOW, "--config", str(tmp_path / "workers.toml"), **environment) as server:
        server.push(queue, *({"class": job_class, "args": [n], "jid": f"j{n}"} for n in range(7)))
        notes = server.wait_for_notes(7, "begin")
        assert most_in_a_second([at for *_, at in notes]) == 2
        assert len((tmp_path / "fired").read_text().splitlines()) == int(failpoint[-1])


MODES = """
slots = worker.limit("slots", concurrency=2)

@worker.job(queue="async", concurrency=4, processes=2, limits=[slots])
async def wait(number):
    note("begin", number, time.time())
    while not Path(__file__).with_name("go").exists():
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.02)
    note("end", number, time.time())

@worker.job(queue="thread", concurrency=4, processes=2, mode="thread", limits=[slots])
def sleep(number):
    note("begin", number, time.time())
    wait_for_file("go")
    time.sleep(0.02)
    note("end", number, time.time())
"""


def test_a_limit_holds_over_queues_of_all_modes(serve: Serve) -> None:
    with serve("import asyncio\n" + MODES) as server:
        for n in range(20):
            server.push("async", {"class": "wait", "args": [n], "jid": f"a{n}"})
            server.push("thread", {"class": "sleep", "args": [n], "jid": f"t{n}"})
        server.wait_for_notes(2, "begin")
        server.let_go("go")
        server.wait_for_notes(40, "end")
        assert most_at_once([row for row in server.ledger() if row[1] in ("begin", "end")]) == 2
        wait_for(lambda: server.settled("async", "thread"))


WAITING = """
@worker.job(queue="q", concurrency=2, limits=[worker.limit("slots", concurrency=1)])
def hold(number):
    note("begin", number)
    wait_for_file("go")
    note("end", number)
"""


def slots(server: ServerProcess) -> int:
    return int(server.redis.zcard(server.keys.limit("slots")))


def test_a_stop_frees_the_slots_of_the_jobs_that_it_gives_back(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "workers.toml").write_text("[server]\nshutdown_timeout = 0.5\n")
    with serve(WAITING, "--config", str(tmp_path / "workers.toml")) as server:
        server.push("q", *({"class": "hold", "args": [n], "jid": f"j{n}"} for n in range(2)))
        server.wait_for_notes(1, "begin")
        wait_for(lambda: len(server.zset("schedule")) == 1)
        assert slots(server) == 1
        assert server.stop() == 0
        assert slots(server) == 0
        # The other one was called: both wait in the queue.
        assert (server.waiting("q"), server.zset("schedule")) == (2, [])


def test_a_cancelled_job_frees_its_slot(serve: Serve) -> None:
    with serve(WAITING) as server:
        server.push("q", *({"class": "hold", "args": [n], "jid": f"j{n}"} for n in range(2)))
        [[_, _, first]] = server.wait_for_notes(1, "begin")
        wait_for(lambda: len(server.zset("schedule")) == 1)
        with Client(server.url, namespace=server.keys.namespace) as client:
            client.cancel(f"j{first}")
        server.let_go("go")
        server.wait_for_notes(1, "end", 1 - first)
        wait_for(lambda: slots(server) == 0)


def test_a_slow_queue_does_not_hold_a_slot_for_a_called_job(serve: Serve) -> None:
    """All workers are busy with other jobs: what is called waits at the head of its queue."""
    code = (
        WAITING
        + """
@worker.job(queue="q")
def other(file):
    note("other", file)
    wait_for_file(file)
"""
    )
    with serve(code) as server:
        server.push("q", *({"class": "hold", "args": [n], "jid": f"j{n}"} for n in range(3)))
        server.wait_for_notes(1, "begin")
        wait_for(lambda: len(server.zset("schedule")) == 2)
        server.push("q", *({"class": "other", "args": ["others"], "jid": f"o{n}"} for n in range(3)))
        server.wait_for_notes(1, "other")
        server.let_go("go")
        server.wait_for_notes(1, "end")
        server.let_go("others")
        server.wait_for_notes(3, "end")
        wait_for(lambda: server.settled("q", sets=["schedule"]))


def test_a_queue_with_many_jobs_costs_no_more_than_its_rate(tmp_path: Path, one_binary: str) -> None:
    (tmp_path / "workers.toml").write_text('[queues.pay]\nrate = "10/s"\n')
    options = ("--config", str(tmp_path / "workers.toml"))
    with (
        OwnRedis(one_binary, tmp_path / "redis") as own,
        serving(tmp_path, own.start().url, "", QUEUES, *options) as server,
    ):
        server.let_go("go")
        for start in range(0, 100_000, 10_000):
            jobs = range(start, start + 10_000)
            server.push("pay", *({"class": "pay", "args": [n], "jid": f"j{n}"} for n in jobs))
        server.redis.config_resetstat()
        begun = time.monotonic()
        before = len(server.wait_for_notes(1, "begin"))
        started = len(server.wait_for_notes(before + 30, "end")) - before
        seconds = time.monotonic() - begun
        calls = server.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
        # A script takes jobs, one settles them, one looks for more; other parts send a few a second.
        assert calls <= 4 * started + 10 * seconds
        # No job is fetched long before it may start.
        waiting = server.waiting("pay")
        assert waiting + len(server.wait_for_notes(1, "begin")) >= 100_000 - 8
