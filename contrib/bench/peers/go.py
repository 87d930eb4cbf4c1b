"""go-workers and go-workers2: what pyworkers is a port of; and pyworkers' own worker and client for Go."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Go
from contrib.bench.peer import Command, Peer, Serving


def peer(name: str, program: str, module: str, settings: str, expected: int) -> Peer:
    return of(name, Go(program, module, package=program), settings, expected)


def of(name: str, environment: Go, settings: str, expected: int) -> Peer:
    def serve(_serving: Serving) -> list[Command]:
        return [(environment.command(environment.name), "serve")]

    return Peer(
        name=name,
        environment=environment,
        program=environment.program(environment.name),
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
# The due jobs of a Redis are moved by a server in Python.
GO_PYWORKERS = replace(
    of(
        "go-pyworkers",
        Go("go-pyworkers", "github.com/redis/go-redis/v9", "go-pyworkers"),
        "pyworkers.Serve with 10 goroutines, pool of 30 connections",
        40_000,
    ),
    delivery="at least once: runs again elsewhere within 60 s",
    bulk=True,
    later=False,
    schedule_key="",
    compares=True,
)
