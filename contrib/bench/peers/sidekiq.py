"""Sidekiq: Debian's 6.4, in one process and in two, for one process of Ruby uses one core."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Debian
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Debian("ruby-sidekiq", "sidekiq")
APP = "contrib/bench/programs/sidekiq_app.rb"


def _process(threads: int) -> Command:
    return (
        ENVIRONMENT.command("sidekiq"),
        "-e",
        "production",
        "-c",
        str(threads),
        "-q",
        "bench",
        "-r",
        f"./{APP}",
    )


def serve_one(serving: Serving) -> list[Command]:
    return [_process(serving.workers)]


def serve_two(serving: Serving) -> list[Command]:
    return [_process(serving.workers)] * 2


SIDEKIQ = Peer(
    name="sidekiq",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve_one,
    delivery="at most once: popped before it runs (super_fetch is not in the free one)",
    settings="10 threads, one process",
    expected=10_000,
    many=True,
    bulk=True,
    schedule_key="schedule",
    queue_key="queue:bench",
)
SIDEKIQ_TWO = replace(
    SIDEKIQ,
    name="sidekiq-2",
    serve=serve_two,
    settings="two processes of 10 threads",
    expected=14_000,
    many=False,
)
