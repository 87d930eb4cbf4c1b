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
from pyworkers.ipc import frames
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Kind, Packet, pair
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
    app, rng = Worker(), random.Random()
    app.process(_QUEUE)(lambda message: None)
    runner = SerialRunner(app, Settings(), rng, lambda *_: None, lambda _: None)
    job = envelope.encode({"jid": envelope.new_jid(rng), "class": "", "args": []}).encode()
    masters, workers = pair()
    for number in range(_TIMES):
        masters.send(number, Kind.JOB, _QUEUE.encode(), job)
        if isinstance(packet := workers.receive(), Packet):
            frames.pack_short(frames.Kind.OUTCOME, 0, number, runner.run(packet).pack(0))
    masters.close()
    workers.close()
