"""pyworkers itself, from this working tree: without and with uvloop, with coroutines, with threads."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Environment, Python
from contrib.bench.peer import Command, Peer, Serving, to_line_log

PLAIN = Python("pyworkers", ("-e", "THIS"), ("pyworkers-server", "redis", "hiredis", "simplejson"))
FAST = Python("pyworkers-uvloop", ("-e", "THIS", "uvloop"), (*PLAIN.shown, "uvloop"))

APP = "contrib.bench.programs.pyworkers_app"


def describe(name: str, environment: Environment, settings: str) -> Peer:
    def serve(serving: Serving) -> list[Command]:
        command = (environment.command("pyworkers"), "run", "--app", f"{APP}:worker", "--url", serving.url)
        if not serving.line_log:
            return [(*command, "--log-level", "warning", "--log-format", "json")]
        return [to_line_log(*command, "--log-level", "info", "--log-format", "json")]

    return Peer(
        name=name,
        environment=environment,
        program=environment.program(APP),
        serve=serve,
        delivery="at least once: runs again elsewhere within 60 s",
        settings=settings,
        expected=40_000,
        bulk=True,
        batches=True,
        schedule_key="schedule",
        queue_key="queue:bench",
        help=(environment.command("pyworkers"), "--help"),
    )


PYWORKERS = describe("pyworkers", PLAIN, "defaults, asyncio's own loop; 10 processes")
PYWORKERS_UVLOOP = describe("pyworkers-uvloop", FAST, "defaults, the extra fast; 10 processes")
PYWORKERS_ASYNC = replace(
    PYWORKERS_UVLOOP,
    name="pyworkers-async",
    settings="the extra fast; an async def job in 2 processes (the cores)",
    variables=(("BENCH_MODE", "async"),),
    few=False,
    many=True,
)
PYWORKERS_THREAD = replace(
    PYWORKERS_ASYNC,
    name="pyworkers-thread",
    settings="the extra fast; mode thread in 2 processes (the cores)",
    variables=(("BENCH_MODE", "thread"),),
)
