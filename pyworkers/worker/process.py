"""The worker process: start-up, signals and pipes; a runner runs the jobs that arrive.

Forked by the fork server, in a session of its own. It has no Redis connection of the server and never
acknowledges a job: it reports the outcome in a frame, and the master settles it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pyworkers import logs, programs
from pyworkers.app import Worker
from pyworkers.failpoints import hit, hit_amid
from pyworkers.ipc.control import Settings
from pyworkers.ipc.frames import SECONDS, Kind, Reader, pack
from pyworkers.worker.execution import Execution
from pyworkers.worker.hygiene import Snapshot, flush_output, show_stacks
from pyworkers.worker.interrupts import listen
from pyworkers.worker.leftovers import end_programs
from pyworkers.worker.lifeline import die_with
from pyworkers.worker.recycle import Recycler
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.title import set_title

BOOT_FAILED = 70
"""Exit status of a worker whose start-up hook failed (EX_SOFTWARE of sysexits.h)."""

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Pipes:
    """The descriptors of one worker."""

    jobs: int
    outcomes: int
    lifeline: int


def main(app: Worker, queue: str, pipes: Pipes, settings: Settings) -> NoReturn:
    """Run the jobs of a queue until the job pipe is closed, then exit."""
    os.setsid()
    die_with(pipes.lifeline)
    set_title(f"worker {queue}")
    _set_signals()
    programs.mark()
    random.seed()
    status = 0
    try:
        for hook in app.hooks("on_startup"):
            hook()
    except BaseException:
        log.exception("worker.boot_failed", queue=queue)
        exit_now(BOOT_FAILED)
    try:
        WorkerProcess(app, queue, pipes, settings).serve()
        status = run_hooks(app.hooks("on_shutdown"), "on_shutdown")
    except BaseException:
        log.exception("worker.failed", queue=queue)
        status = 1
    exit_now(status)


def run_hooks(hooks: Sequence[Callable[..., object]], kind: str) -> int:
    """Call all hooks, also after one has failed. Returns an exit status: 1 if a hook failed, else 0."""
    status = 0
    for hook in hooks:
        try:
            hook()
        except BaseException:
            log.exception("hook.failed", hook=kind)
            status = 1
    return status


def exit_now(status: int) -> NoReturn:
    """Exit without the exit handlers that this process, a fork, has inherited from the fork server."""
    try:
        flush_output()
    finally:
        os._exit(status)


class WorkerProcess:
    """One worker of one queue."""

    def __init__(self, app: Worker, queue: str, pipes: Pipes, settings: Settings) -> None:
        self._pipes = pipes
        rng = random.Random()
        self._recycler = Recycler(settings.max_jobs_per_worker, settings.max_memory_mb, rng)
        self._numbers = app.handler_numbers()
        self._runner = SerialRunner(app, queue, settings, rng, self._announce_limit, self._end_programs)
        listen(self._runner.ask_to_end)
        self._state = Snapshot()

    def serve(self) -> None:
        """Run jobs until the master closes the pipe, or until this process must be replaced."""
        self._write(pack(Kind.READY, os.getpid()))
        reader, runner, run = Reader(), self._runner, self._runner.run
        while data := os.read(self._pipes.jobs, reader.wanted):
            for kind, delivery, payload in reader.feed(data):
                hit("job_start")
                report = run(delivery, payload) if kind is Kind.JOB else runner.run_exhausted_hooks(payload)
                hit("job_end")
                if self._state.is_copy:
                    # A job has forked, and both processes returned from it: only the original is the worker.
                    exit_now(0)
                retiring = self._recycler.due() or not self._restored()
                if retiring:
                    report = report._replace(retiring=True)
                handler = self._numbers.get(report.job_class, 0)
                self._write(pack(Kind.OUTCOME, delivery, report.pack(handler)))
                if retiring:
                    return

    def _restored(self) -> bool:
        restored = self._state.restore()
        if not restored:
            log.warning("worker.spoiled", hint="the job closed stdout, or the working directory is gone")
        return restored

    def _announce_limit(self, delivery: int, seconds: float) -> None:
        """Send the limit to the master, which enforces it, before the job can hang."""
        self._write(pack(Kind.LIMIT, delivery, SECONDS.pack(seconds)))

    def _end_programs(self, execution: Execution) -> None:
        """Kill the programs of a job that was asked to end; if there were any, have this worker replaced.

        A killed program may have belonged to the worker instead of the job: a thread or a program of an
        ``on_startup`` hook may have started it while the job ran.
        """
        if self._state.is_copy:
            return
        if killed := end_programs(time.monotonic() - execution.started_s):
            log.warning("programs.killed", pids=killed, hint="their job was asked to end")
            self._recycler.retire()

    def _write(self, data: bytes) -> None:
        data = hit_amid("mid_frame", self._pipes.outcomes, data)
        sent = os.write(self._pipes.outcomes, data)
        if sent < len(data):
            rest = memoryview(data)[sent:]
            while rest:
                rest = rest[os.write(self._pipes.outcomes, rest) :]


def _set_signals() -> None:
    """Ignore the signals that a terminal or a supervisor sends to all processes: the master ends workers.

    Empty handlers, not SIG_IGN, which programs that a job starts would inherit. SIGALRM is ignored because an
    alarm that a job has set may expire after the job.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    show_stacks()
