"""go-workers and go-workers2: what pyworkers is a port of."""

from __future__ import annotations

from contrib.bench.environments import Go
from contrib.bench.peer import Command, Peer, Serving


def peer(name: str, program: str, module: str, settings: str, expected: int) -> Peer:
    environment = Go(program, module)

    def serve(_serving: Serving) -> list[Command]:
        return [(environment.command(program), "serve")]

    return Peer(
        name=name,
        environment=environment,
        program=environment.program(program),
        serve=serve,
        delivery="at least once, if a process with the same id starts again",
        settings=settings,
        expected=expected,
        many=True,
        schedule_key="schedule",
        queue_key="queue:bench",
    )


GO_WORKERS = peer(
    "go-workers",
    "goworkers",
    "github.com/jrallison/go-workers",
    "10 goroutines, 30 connections, retry and stats middleware; logs: its own logging middleware",
    25_000,
)
GO_WORKERS2 = peer(
    "go-workers2",
    "goworkers2",
    "github.com/digitalocean/go-workers2",
    "as go-workers, pool of 30 connections",
    35_000,
)
