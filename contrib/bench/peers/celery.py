"""Celery: as fast as it goes, and with jobs that survive their worker."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Python("celery", ("celery[redis]", "hiredis"), ("celery", "kombu", "redis"))
APP = "contrib.bench.programs.celery_app"


def serve(serving: Serving) -> list[Command]:
    log = ("-l", "INFO", "-f", serving.line_log) if serving.line_log else ("-l", "WARNING")
    # Each of the three is background traffic that one worker alone does not need.
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    pool = ("-P", "prefork", "-c", str(serving.workers), "-O", "fair")
    return [(ENVIRONMENT.command("celery"), "-A", APP, "worker", *pool, *quiet, *log)]


CELERY = Peer(
    name="celery",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at most once: running jobs are lost, prefetched ones come back after an hour",
    settings="prefork 10, prefetch 64 each, no results, events, gossip, mingle, heartbeat nor remote control",
    expected=2_500,
    help=(ENVIRONMENT.command("celery"), "--help"),
)
CELERY_LATE = replace(
    CELERY,
    name="celery-late",
    delivery="at least once, after the visibility timeout of an hour",
    settings="as celery, with acks_late, reject_on_worker_lost, prefetch 4 each",
    variables=(("BENCH_CELERY", "late"),),
    expected=2_000,
)
