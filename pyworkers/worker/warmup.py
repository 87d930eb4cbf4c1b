"""Warm-up: runs a no-op job 40 times before the first fork, so that workers share specialized bytecode.

Runs in the fork server. CPython specializes code in place as it runs (PEP 659), and a page that a worker
writes to is no longer shared. Without this, the first job of every worker would be its slowest.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.ipc.control import Settings
from pyworkers.ipc.frames import Kind, Reader, pack
from pyworkers.protocol import envelope
from pyworkers.worker.runner import SerialRunner

_TIMES = 40
_QUEUE = "warmup"


def warm_up(log_level: str) -> None:
    """Run the no-op jobs and drop their log lines. Logging must be configured again afterwards."""
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(log_level, "json", nowhere)
        _run_jobs()
        logs.reset()


def _run_jobs() -> None:
    app, rng, reader = Worker(), random.Random(), Reader()
    app.process(_QUEUE)(lambda message: None)
    runner = SerialRunner(app, _QUEUE, Settings(), rng, lambda *_: None, lambda _: None)
    job = envelope.encode({"jid": envelope.new_jid(rng), "class": "", "args": []}).encode()
    for _ in range(_TIMES):
        for _, delivery, payload in reader.feed(pack(Kind.JOB, 0, job)):
            runner.run(delivery, payload).pack(0)
