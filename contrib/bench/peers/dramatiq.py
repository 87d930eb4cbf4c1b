"""Dramatiq."""

from __future__ import annotations

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Python("dramatiq", ("dramatiq[redis]", "redis[hiredis]"), ("dramatiq", "redis", "hiredis"))
APP = "contrib.bench.programs.dramatiq_app"
PROCESSES = 2


def serve(serving: Serving) -> list[Command]:
    threads = max(1, serving.workers // PROCESSES)
    pool = ("--processes", str(PROCESSES), "--threads", str(threads))
    command = (ENVIRONMENT.command("dramatiq"), APP, *pool)
    # It has one line per job at its debug level only.
    return [(*command, "--verbose", "--log-file", serving.line_log) if serving.line_log else command]


DRAMATIQ = Peer(
    name="dramatiq",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at least once: a dead worker's jobs run again after a minute",
    settings="2 processes (the cores) of 5 threads, default middleware; log at debug, where its jobs are",
    expected=4_000,
    many=True,
    help=(ENVIRONMENT.command("dramatiq"), "--help"),
)
