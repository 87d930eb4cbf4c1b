"""Groups of queues under a real server: their order, their pauses, their moves, and what is shown of them."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyworkers.cli import main
from tests.helpers.processes import process_alive
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

APP = """
@worker.job(queue="critical")
def ran(queue, key):
    note("ran", queue, key)

@worker.job(queue="critical")
def waits(name):
    meet(name)
    note("end", name)

@worker.job(queue="critical")
def sleeps(queue):
    time.sleep(0.004)
    note("slept", queue)
"""
IN_ORDER = f'{APP}\nworker.group("web", queues=["critical", "default"], concurrency=1)'


def blocked(server: ServerProcess, name: str = "first") -> None:
    """Have the one worker of the group run a job that waits for ``let_go``, so that it fetches nothing."""
    server.push("default", job(name, "waits", name))
    server.wait_for_notes(1, name)


def push(server: ServerProcess, queue: str, *keys: int) -> None:
    server.push(queue, *(job(f"{queue}-{key}", "ran", queue, key) for key in keys))


def order(server: ServerProcess, count: int) -> list[list[Any]]:
    return [note[2:] for note in server.wait_for_notes(count, "ran")]


def test_a_list_is_served_in_its_order(serve: Serve) -> None:
    with serve(IN_ORDER) as server:
        blocked(server)
        push(server, "default", 1, 2, 3)
        push(server, "critical", 1, 2, 3)
        server.let_go("first")
        expected = [[queue, key] for queue in ("critical", "default") for key in (1, 2, 3)]
        assert order(server, 6) == expected
        wait_for(lambda: server.settled("critical", "default"))


def test_weights_decide_how_often_a_queue_is_first(serve: Serve) -> None:
    code = APP + '\nworker.group("web", queues={"critical": 3, "default": 1}, concurrency=1)'
    with serve(code) as server:
        blocked(server)
        for queue in ("critical", "default"):
            server.push(queue, *(job(f"{queue}-{key}", "sleeps", queue) for key in range(400)))
        server.let_go("first")
        notes = server.wait_for_notes(400, "slept", timeout=120)[:400]
        counts = Counter(note[2] for note in notes)
        # The jobs are too long to be fetched ahead, so that each is a draw: 300 of 400, give or take 8.7. Six
        # times that happens once in a billion runs.
        assert 248 <= counts["critical"] <= 352, counts


def test_a_paused_queue_is_passed_over(serve: Serve) -> None:
    with serve(IN_ORDER) as server:
        blocked(server)
        push(server, "critical", 1)
        push(server, "default", 1)
        server.redis.sadd(server.keys.paused, "critical")
        server.wait_for_event("queue.paused", queue="critical")
        server.let_go("first")
        assert order(server, 1) == [["default", 1]]
        wait_for(lambda: server.settled("default"))
        assert server.waiting("critical") == 1
        server.redis.srem(server.keys.paused, "critical")
        assert order(server, 2) == [["default", 1], ["critical", 1]]


def test_a_queue_without_a_job_of_its_own_runs_any_job(serve: Serve) -> None:
    code = APP + '\nworker.group("all", queues=["urgent", "critical"], concurrency=2)'
    with serve(code) as server:
        push(server, "urgent", 1)
        assert order(server, 1) == [["urgent", 1]]
        server.push("urgent", job("bad", "Unknown", retry=False))
        failed = server.wait_for_event("job.misfit", jid="bad")
        assert (failed["queue"], failed["error_class"]) == ("urgent", "UnknownJobError")
        wait_for(lambda: server.settled("urgent", "critical"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--group", "default,critical=1"), [["default", 1], ["critical", 1]]),
        (("--queue", "critical=1"), [["critical", 1]]),
    ],
)
def test_the_command_line_overrules_the_application(
    serve: Serve, words: tuple[str, ...], expected: list[list[Any]]
) -> None:
    with serve(IN_ORDER, *words) as server:
        server.push("critical", job("first", "waits", "first"))
        server.wait_for_notes(1, "first")
        push(server, "critical", 1)
        push(server, "default", 1)
        server.let_go("first")
        assert order(server, len(expected)) == expected
        wait_for(lambda: server.settled(*(queue for queue, _ in expected)))


def test_hup_moves_queues_from_group_to_group_and_loses_no_job(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "workers.toml"
    file.write_text('[groups.web]\nqueues = ["critical", "default"]\nconcurrency = 2\n')
    with serve(APP, "--config", str(file)) as server:
        total = 0
        for number, text in enumerate(
            (
                '[groups.web]\nqueues = ["default", "critical"]\nconcurrency = 3\n',
                "[groups.other]\nqueues = {default = 1, critical = 2}\nconcurrency = 2\n",
                '[groups.web]\nqueues = ["default"]\nconcurrency = 2\n',
                '[groups.web]\nqueues = ["critical", "default"]\nconcurrency = 2\n',
            ),
            1,
        ):
            server.push("default", job(f"running{number}", "waits", f"running{number}"))
            server.wait_for_notes(1, f"running{number}")
            for queue in ("critical", "default"):
                push(server, queue, *range(total, total + 50))
            total += 50
            file.write_text(text)
            server.signal(signal.SIGHUP)
            server.wait_for_event("reload.started", count=number)
            server.let_go(f"running{number}")
            server.wait_for_event("reload.done", count=number)
        ran = order(server, 2 * total)
        wait_for(lambda: server.settled("critical", "default"))
        assert sorted(map(tuple, ran)) == sorted(
            (queue, key) for queue in ("critical", "default") for key in range(total)
        )
        assert len(server.ledger()) == 2 * total + 2 * 4
        assert server.stop() == 0
        assert server.events("reload.failed") == []


def test_sizes_and_running_jobs_are_shown_for_the_group(
    serve: Serve, one_redis_url: str, namespace: str
) -> None:
    code = APP + '\nworker.group("web", queues={"critical": 5, "default": 2}, concurrency=2)'
    with serve(code) as server:
        for name in ("first", "second"):
            blocked(server, name)
        push(server, "critical", 1, 2, 3)
        push(server, "default", 1)
        options = ["--url", one_redis_url, "--namespace", namespace]

        def stats() -> dict[str, Any]:
            found: dict[str, Any] = json.loads(CliRunner().invoke(main, ["stats", "--json", *options]).stdout)
            return found

        def sizes() -> dict[str, int]:
            return {queue["name"]: queue["size"] for queue in stats()["queues"]}

        # A blocking move that was under way may take a job, which is given back after 50 ms.
        wait_for(lambda: sizes() == {"critical": 3, "default": 1}, message="all wait in their queues")
        web = {
            "name": "web", "queues": {"critical": 5, "default": 2}, "strict": False, "mode": "process",
            "servers": 1, "processes": 2, "concurrency": 2, "busy": 2, "workers": {"busy": 2}, "restarts": 0,
        }  # fmt: skip
        wait_for(lambda: stats()["groups"] == [web], message="both jobs are shown")
        frame = CliRunner().invoke(main, ["top", "--once", *options]).stdout
        assert ["web", "process", "1", "2", "2", "2", "critical:5,default:2"] in [
            line.split() for line in frame.splitlines()
        ]


@pytest.mark.parametrize(
    ("function", "mode"), [("async def", "async"), ("def", "thread"), ("async def", "thread")]
)
def test_processes_share_the_concurrency_of_a_group(
    serve: Serve, one_redis_url: str, namespace: str, function: str, mode: str
) -> None:
    wait = "while not Path(__file__).with_name('go').exists(): "
    wait += "await asyncio.sleep(0.01)" if function == "async def" else "time.sleep(0.01)"
    code = f"""
import asyncio

@worker.job(queue="a")
{function} held(key):
    note("start", key)
    {wait}
    note("end", key)

worker.group("web", queues=["a", "b"], concurrency=7, processes=2, mode="{mode}")
"""
    with serve(code) as server:
        for queue in ("a", "b"):
            server.push(queue, *(job(f"{queue}{key}", "held", f"{queue}{key}") for key in range(4)))
        notes = server.wait_for_notes(7, "start")
        assert sorted(Counter(pid for pid, *_ in notes).values()) == [3, 4]
        options = ["--url", one_redis_url, "--namespace", namespace]

        def busy() -> dict[str, Any] | None:
            groups = json.loads(CliRunner().invoke(main, ["stats", "--json", *options]).stdout)["groups"]
            return next((group for group in groups if group["busy"] == 7), None)

        group = wait_for(busy, message="all jobs are shown")
        assert (group["mode"], group["processes"], group["concurrency"]) == (mode, 2, 7)
        running = json.loads(CliRunner().invoke(main, ["workers", "--json", *options]).stdout)
        assert len({work["thread"] for work in running}) == 7
        server.let_go("go")
        server.wait_for_notes(8, "end")
        wait_for(lambda: server.settled("a", "b"))
        assert server.stop() == 0


def test_hup_changes_the_mode_of_a_group(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "workers.toml"
    file.write_text("[queues.critical]\nconcurrency = 2\n")
    code = APP + "\n@worker.on_startup\ndef up():\n    note('up')\n"
    started = 2
    with serve(code, "--config", str(file)) as server:
        for number, (mode, processes) in enumerate((("thread", 1), ("process", 2), ("thread", 1)), 1):
            before = [note[0] for note in server.wait_for_notes(started, "up")]
            sizes = f"concurrency = 2\nprocesses = {processes}\n"
            file.write_text(f'[queues.critical]\n{sizes}mode = "{mode}"\n')
            server.signal(signal.SIGHUP)
            started += processes
            server.wait_for_notes(started, "up")
            # Until then they take jobs, too.
            wait_for(lambda old=before: not any(map(process_alive, old)))  # type: ignore[misc]
            name = f"n{number}"
            server.push("critical", *(job(f"{name}{key}", "waits", name) for key in range(2)))
            notes = server.wait_for_notes(2, name)
            assert len({pid for pid, *_ in notes}) == processes
            server.let_go(name)
            server.wait_for_notes(2, "end", name)
        wait_for(lambda: server.settled("critical"))
