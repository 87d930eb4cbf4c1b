"""SAQ."""

from __future__ import annotations

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving, to_line_log

ENVIRONMENT = Python(
    "saq", ("saq[redis]", "hiredis", "uvloop", "typing_extensions"), ("saq", "redis", "hiredis", "uvloop")
)
APP = "contrib.bench.programs.saq_app"


def serve(serving: Serving) -> list[Command]:
    command = (ENVIRONMENT.command("saq"), f"{APP}.settings", "--workers", "2")
    return [to_line_log(*command, "--verbose") if serving.line_log else command]


SAQ = Peer(
    name="saq",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at least once, if the job has retries: a sweep finds stuck jobs",
    settings="2 processes (the cores) of 5 coroutines",
    expected=2_500,
    many=True,
    help=(ENVIRONMENT.command("saq"), "--help"),
)
