"""arq."""

from __future__ import annotations

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Python("arq", ("arq", "redis[hiredis]", "uvloop"), ("arq", "redis", "hiredis", "uvloop"))
APP = "contrib.bench.programs.arq_app"


def serve(_serving: Serving) -> list[Command]:
    return [(ENVIRONMENT.command("arq"), f"{APP}.WorkerSettings", "--custom-log-dict", f"{APP}.LOG")]


ARQ = Peer(
    name="arq",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at least once: a dead worker's job runs again after its time limit",
    settings="one process, 10 coroutines, poll_delay 1 ms instead of 500, results not kept",
    expected=700,
    many=True,
    help=(ENVIRONMENT.command("arq"), "--help"),
)
