"""Warm-up: the way of a job, gone a few times in the fork server, before there are workers.

CPython specializes code in place as it runs (PEP 659), and a page that a worker writes to is shared no more.
What was run here is ready in every worker, whose first job is then not its slowest.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.ipc.frames import Kind, Reader, pack
from pyworkers.protocol import envelope
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Report
from pyworkers.worker.chain import chain_for
from pyworkers.worker.limits import limited
from pyworkers.worker.links.stats import Stats

_TIMES = 40
_QUEUE = "warmup"


def warm_up(log_level: str) -> None:
    """Run a job that does nothing; what it logs goes nowhere. Leaves logging to be configured."""
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(log_level, "json", nowhere)
        _run_jobs()
        logs.reset()


def _run_jobs() -> None:
    app, stats, rng, reader = Worker(), Stats(), random.Random(), Reader()
    app.process(_QUEUE)(lambda message: None)
    handler = app.lookup(_QUEUE, "")
    chain = chain_for(
        app,
        handler,
        stats,
        max_retries=0,
        clock=time.time,
        rng=rng,
        inner=(lambda call: limited(call, 0.0, lambda _: None, lambda _: None),),
    )
    job = envelope.encode({"jid": envelope.new_jid(rng), "class": "", "args": []}).encode()
    for _ in range(_TIMES):
        for _, _, payload in reader.feed(pack(Kind.JOB, 0, job)):
            message = Message.parse(payload, _QUEUE, lambda: envelope.new_jid(rng))
            Report(chain(message), stats.take(), False, handler.name).pack(0)
