"""Celery: as fast as it goes, with jobs that survive their worker, with threads, with greenlets."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving

ENVIRONMENT = Python("celery", ("celery[redis]", "hiredis", "gevent"), ("celery", "kombu", "redis", "gevent"))
APP = "contrib.bench.programs.celery_app"


def serve(serving: Serving, pool: str = "prefork") -> list[Command]:
    log = ("-l", "INFO", "-f", serving.line_log) if serving.line_log else ("-l", "WARNING")
    # Each of the three is background traffic that one worker alone does not need.
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    workers = ("-P", pool, "-c", str(serving.workers), "-O", "fair")
    return [(ENVIRONMENT.command("celery"), "-A", APP, "worker", *workers, *quiet, *log)]


def serve_threads(serving: Serving) -> list[Command]:
    return serve(serving, "threads")


def serve_gevent(serving: Serving) -> list[Command]:
    return serve(serving, "gevent")


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
CELERY_THREADS = replace(
    CELERY,
    name="celery-threads",
    serve=serve_threads,
    settings="as celery, with -P threads: one process",
    few=False,
    many=True,
)
CELERY_GEVENT = replace(
    CELERY_THREADS,
    name="celery-gevent",
    serve=serve_gevent,
    settings="as celery, with -P gevent: one process",
)
