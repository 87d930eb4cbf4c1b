"""The worker process: start-up, hooks, signals and exit; a runner runs the jobs that arrive.

Forked by the fork server, in its own session. It has no Redis connection of the server and never
acknowledges a job: it reports the outcome in a frame, and the master settles it.
"""

from __future__ import annotations

import fcntl
import math
import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from pyworkers import logs, programs
from pyworkers.app import Worker
from pyworkers.ipc.control import BOOT_FAILED, Settings
from pyworkers.worker import output
from pyworkers.worker.asyncrunner import AsyncProcess
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chains import ProcessParts
from pyworkers.worker.connection import Connection, WorkerSetup
from pyworkers.worker.hygiene import exit_now, show_stacks
from pyworkers.worker.runner import SerialProcess
from pyworkers.worker.signals import ignore_signals
from pyworkers.worker.threadrunner import ThreadProcess

# As long as the longest delay between two attempts to start workers (server/pool/scale.py).
_REASON_AGAIN_S = 30.0
_MODES: dict[str, type[SerialProcess] | type[AsyncProcess] | type[ThreadProcess]] = {
    "process": SerialProcess,
    "async": AsyncProcess,
    "thread": ThreadProcess,
}

log = logs.get_logger()


class FailurePermit:
    """Permits one worker of a fork server to log why its start failed, and after a time another one.

    All workers run the same hooks, so that usually all fail if one does. The permit is a byte in a pipe,
    which one process can read.
    """

    def __init__(self) -> None:
        self._taker, self._giver = os.pipe()
        os.set_blocking(self._taker, False)
        self._given_at = -math.inf

    def give(self, now_s: float) -> None:
        """Have the permit there, unless it was given a short time ago. Called before each fork."""
        if now_s - self._given_at >= _REASON_AGAIN_S:
            self.take()
            os.write(self._giver, b"1")
            self._given_at = now_s

    def take(self) -> bool:
        """True for one caller."""
        try:
            return bool(os.read(self._taker, 1))
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the descriptors of this process."""
        os.close(self._taker)
        os.close(self._giver)


def main(
    app: Worker, group: str, setup: WorkerSetup, settings: Settings, permit: FailurePermit | None
) -> NoReturn:
    """Run the jobs of a group until the master asks this process to leave, then exit.

    ``permit`` is needed for start-up hooks.
    """
    os.setsid()
    die_with(setup.lifeline)
    set_title(f"worker {group}")
    ignore_signals()
    show_stacks(setup.page)
    output.hold()
    programs.mark()
    random.seed()
    status = 0
    bridge = Bridge(setup.mode)
    try:
        app.enter(setup.mode)
        for hook in app.hooks("on_startup"):
            bridge.run(hook)
    except BaseException:
        if permit is None or permit.take():
            log.exception("worker.boot_failed", queue=group, hook="on_startup")
        exit_now(BOOT_FAILED)
    if permit is not None:
        permit.close()
    try:
        connection = Connection(setup, app.handler_numbers())
        _MODES[setup.mode](ProcessParts(app, settings, random.Random(), bridge, connection)).serve()
        status = run_hooks(app.hooks("on_shutdown"), "on_shutdown", bridge.run)
    except BaseException:
        log.exception("worker.failed", queue=group)
        status = 1
    exit_now(status)


def run_hooks(
    hooks: Sequence[Callable[..., object]],
    kind: str,
    call: Callable[[Callable[..., object]], object] = lambda hook: hook(),
) -> int:
    """Call all hooks, also after one has failed. Returns an exit status: 1 if a hook failed, else 0."""
    status = 0
    for hook in hooks:
        try:
            call(hook)
        except BaseException:
            log.exception("hook.failed", hook=kind)
            status = 1
    return status


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process and its group when the write end of the pipe is closed.

    Only the master holds that end, and writes nothing: so no process outlives the master.
    A death signal (PR_SET_PDEATHSIG) is bound to the fork server, which may be replaced while its workers
    run on. A thread that watches the pipe would not run during a C call that holds the GIL, and must not
    exist before a fork. The kernel's I/O signal is bound to the pipe itself and reaches the whole group.
    Where that signal cannot be chosen (macOS), SIGIO ends idle workers, and busy ones between bytecodes.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    else:
        signal.signal(signal.SIGIO, lambda *_: os.killpg(0, signal.SIGKILL))
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    # The master may have died before the flag was set: then this read finds the end of the pipe.
    with suppress(BlockingIOError):
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)


def set_title(title: str) -> None:
    """Set the name that ``top``, ``ps -o comm`` and ``pstree`` show, of which Linux keeps 15 bytes.

    A forked process has the command line of its parent. Does nothing on other systems.
    """
    with suppress(OSError):
        comm = os.open("/proc/self/comm", os.O_WRONLY)
        try:
            os.write(comm, title.encode())
        finally:
            os.close(comm)
