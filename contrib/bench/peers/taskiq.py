"""taskiq, with lists and with streams."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving, to_line_log

ENVIRONMENT = Python(
    "taskiq",
    ("taskiq", "taskiq-redis", "redis[hiredis]", "uvloop", "orjson"),
    ("taskiq", "taskiq-redis", "redis", "uvloop"),
)
APP = "contrib.bench.programs.taskiq_app"
PROCESSES = 2


def serve(serving: Serving) -> list[Command]:
    tasks = max(1, serving.workers // PROCESSES)
    pool = ("--workers", str(PROCESSES), "--max-async-tasks", str(tasks))
    command = (ENVIRONMENT.command("taskiq"), "worker", f"{APP}:broker", *pool, "--no-parse")
    if serving.line_log:
        return [to_line_log(*command, "--log-level", "INFO")]
    return [(*command, "--log-level", "WARNING")]


TASKIQ = Peer(
    name="taskiq-list",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at most once: popped before it runs",
    settings="2 processes (the cores), no result backend, uvloop, orjson, parameters not parsed by pydantic",
    expected=5_000,
    many=True,
    later=False,
    help=(ENVIRONMENT.command("taskiq"), "--help"),
)
TASKIQ_STREAM = replace(
    TASKIQ,
    name="taskiq-stream",
    delivery="at least once: unacknowledged jobs are taken over after 10 minutes",
    settings="as taskiq-list, with the stream broker",
    variables=(("BENCH_TASKIQ", "stream"),),
    expected=4_000,
)
