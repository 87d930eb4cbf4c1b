"""Huey, with processes."""

from __future__ import annotations

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Python("huey", ("huey", "redis[hiredis]"), ("huey", "redis", "hiredis"))
APP = "contrib.bench.programs.huey_app"


def serve(serving: Serving) -> list[Command]:
    log = ("-l", serving.line_log) if serving.line_log else ("-q",)
    pool = ("-k", "process", "-w", str(serving.workers))
    # -n: nothing is periodic. The queue is read with BRPOP, so the polling options do not matter.
    return [(ENVIRONMENT.command("huey_consumer"), f"{APP}.huey", *pool, "-n", *log)]


HUEY = Peer(
    name="huey",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at most once: popped before it runs",
    settings="10 processes, blocking pop, no results, nothing periodic",
    expected=12_000,
    help=(ENVIRONMENT.command("huey_consumer"), "--help"),
)
