"""Warm-up: starts a worker in this process 20 times before the first fork, so that workers share bytecode.

Runs in the fork server, and runs no-op jobs alone. CPython counts the calls of a new function in its code,
and specializes the code in place (PEP 659); a page that a worker writes to is no longer shared. Without this,
the first job of every worker would be its slowest. What workers would load at its first use is loaded here,
too: by then the files may be from another release.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import TextIO

import pyworkers
from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.ipc import frames
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind, pair
from pyworkers.ipc.page import open_page
from pyworkers.protocol import envelope
from pyworkers.store import scripts
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chains import ProcessParts
from pyworkers.worker.connection import Connection, WorkerSetup
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.steps.timelimit import Alarm

_STARTS = 20
# A function is specialized at its eighth call, and an instruction of it a few calls later.
_JOBS_PER_START = 2
_QUEUE = "warmup"
# Modules that others import inside of functions: a program that only enqueues does not need them.
_LATER = (
    "pyworkers.config.loading",
    "pyworkers.plugins.batches",
    "pyworkers.protocol.active_job",
    "pyworkers.store.admin",
    "pyworkers.store.flow.batches",
    "pyworkers.store.flow.limituses",
)


def warm_up(log_level: str) -> None:
    """Run the no-op jobs and drop their log lines. Logging must be configured again afterwards."""
    with Path(os.devnull).open("w") as nowhere:
        logs.configure(log_level, "json", nowhere)
        app, rng = Worker(), random.Random()
        app.process(_QUEUE)(lambda message: None)
        for _ in range(_STARTS):
            _start(app, rng, nowhere)
        logs.reset()


def _start(app: Worker, rng: random.Random, nowhere: TextIO) -> None:
    """Do what a worker does until its second job, but for what would change this process.

    It passes no failpoint: those are for workers.
    """
    masters, workers = pair()
    page, fd = open_page(1)
    setup = WorkerSetup(os.dup(workers.fileno()), nowhere.fileno(), -1, -1, fd, 1, 1)
    for hook in app.hooks("on_startup"):
        hook()
    connection = Connection(setup, app.handler_numbers())
    parts = ProcessParts(app, Settings(), rng, Bridge(), connection)
    recycler = parts.recycler()
    runner = SerialRunner(parts.chains(Alarm, lambda _: None))
    signal.pthread_sigmask(signal.SIG_BLOCK, ())
    job = envelope.encode({"jid": envelope.new_jid(rng), "class": "", "args": []}).encode()
    for number in range(_JOBS_PER_START):
        masters.send(number, PacketKind.JOB, _QUEUE.encode(), job)
        if not connection.leaving and isinstance(packet := workers.receive(), Packet):
            report = runner.run(packet)
            recycler.due()
            frames.pack_short(frames.FrameKind.OUTCOME, 0, number, report.pack(0))
    page.close()
    for end in (masters, workers, connection):
        end.close()


def keep_code() -> None:
    """Load the scripts and all public names; the names of ``pyworkers.api`` if the application imports it."""
    scripts.keep()
    for module in _LATER:
        import_module(module)
    for name in pyworkers.__all__:
        getattr(pyworkers, name)
    if api := sys.modules.get("pyworkers.api"):
        for name in api.__all__:
            getattr(api, name)
