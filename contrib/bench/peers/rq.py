"""RQ: workers that fork for each job, and workers that do not."""

from __future__ import annotations

from dataclasses import replace

from contrib.bench.environments import Python
from contrib.bench.peer import Command, Peer, Serving, to_line_log

ENVIRONMENT = Python("rq", ("rq", "redis[hiredis]"), ("rq", "redis", "hiredis"))
APP = "contrib.bench.programs.rq_app"


def serve(serving: Serving, worker_class: str = "rq.worker.Worker") -> list[Command]:
    pool = ("-n", str(serving.workers), "-w", worker_class, "-u", serving.url)
    command = (ENVIRONMENT.command("rq"), "worker-pool", *pool, "bench")
    return [to_line_log(*command, "-l", "INFO") if serving.line_log else (*command, "-q", "-l", "WARNING")]


def serve_simple(serving: Serving) -> list[Command]:
    return serve(serving, "rq.worker.SimpleWorker")


RQ = Peer(
    name="rq",
    environment=ENVIRONMENT,
    program=ENVIRONMENT.program(APP),
    serve=serve,
    delivery="at most once: if a worker dies, its job has failed",
    settings="worker-pool of 10, results not kept; each job in a process of its own (its default)",
    expected=100,
    bulk=True,
    schedule_key="rq:scheduled:bench",
    help=(ENVIRONMENT.command("rq"), "--help"),
)
RQ_SIMPLE = replace(
    RQ,
    name="rq-simple",
    serve=serve_simple,
    settings="as rq, with SimpleWorker: jobs run in the worker itself, its fastest",
    expected=1_500,
)
