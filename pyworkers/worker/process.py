"""The worker process: start-up, signals, job socket and page; a runner runs the jobs that arrive.

Forked by the fork server, in a session of its own. It has no Redis connection of the server and never
acknowledges a job: it reports the outcome in a frame, and the master settles it.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pyworkers import logs, programs
from pyworkers.app import Worker
from pyworkers.failpoints import hit
from pyworkers.ipc.control import Settings
from pyworkers.ipc.frames import SECONDS, Kind
from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.ipc.page import Page
from pyworkers.worker.execution import Execution
from pyworkers.worker.framewriter import FrameWriter
from pyworkers.worker.hygiene import Snapshot, flush_output, show_stacks
from pyworkers.worker.interrupts import cancelled, interrupted, listen
from pyworkers.worker.leftovers import end_programs
from pyworkers.worker.lifeline import die_with
from pyworkers.worker.recycle import Recycler
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.title import set_title

BOOT_FAILED = 70
"""Exit status of a worker whose start-up hook failed (EX_SOFTWARE of sysexits.h)."""

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of one worker, and its number in its group."""

    jobs: int
    outcomes: int
    lifeline: int
    presence: int
    """The write end of a pipe that is only held open: its end shows that this process has ended."""
    page: int
    member: int
    slots: int


def main(app: Worker, group: str, ends: Ends, settings: Settings) -> NoReturn:
    """Run the jobs of a group until the master asks this process to leave, then exit."""
    os.setsid()
    die_with(ends.lifeline)
    set_title(f"worker {group}")
    _set_signals()
    programs.mark()
    random.seed()
    status = 0
    try:
        for hook in app.hooks("on_startup"):
            hook()
    except BaseException:
        log.exception("worker.boot_failed", queue=group)
        exit_now(BOOT_FAILED)
    try:
        WorkerProcess(app, ends, settings).serve()
        status = run_hooks(app.hooks("on_shutdown"), "on_shutdown")
    except BaseException:
        log.exception("worker.failed", queue=group)
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
    """One worker of one group, which runs one job at a time."""

    def __init__(self, app: Worker, ends: Ends, settings: Settings) -> None:
        self._jobs = JobSocket(socket.socket(fileno=ends.jobs))
        self._page = Page(ends.page, ends.slots)
        os.close(ends.page)
        self._frames = FrameWriter(ends.outcomes, ends.member)
        rng = random.Random()
        self._recycler = Recycler(settings.max_jobs_per_worker, settings.max_memory_mb, rng)
        self._numbers = app.handler_numbers()
        self._runner = SerialRunner(app, settings, rng, self._announce_limit, self._end_programs)
        listen(self._look_at_page)
        self._state = Snapshot()

    def serve(self) -> None:
        """Run jobs until the master asks this process to leave, or until it must be replaced."""
        self._frames.write(Kind.READY, os.getpid())
        page, receive, run = self._page, self._jobs.receive, self._runner.run
        while not page.leaving and (packet := receive()) is not None:
            hit("before_claim")
            page.claim(0, packet.number)
            hit("job_start")
            report = run(packet)
            hit("job_end")
            if self._state.is_copy:
                # A job has forked, and both processes returned from it: only the original is the worker.
                exit_now(0)
            retiring = self._recycler.due() or not self._restored()
            if retiring:
                report = report._replace(retiring=True)
            handler = self._numbers.get(report.job_class, 0)
            self._frames.write(Kind.OUTCOME, packet.number, report.pack(handler))
            if retiring:
                return

    def _look_at_page(self) -> None:
        """Do what the master has written into the page: leave, or end a job; say which job runs."""
        self._page.answer(self._runner.current)
        if self._page.leaving:
            self._jobs.detach()
        for number, interrupt in self._page.requests():
            self._runner.ask_to_end(number, interrupted() if interrupt else cancelled())

    def _restored(self) -> bool:
        restored = self._state.restore()
        if not restored:
            log.warning("worker.spoiled", hint="the job closed stdout, or the working directory is gone")
        return restored

    def _announce_limit(self, delivery: int, seconds: float) -> None:
        """Send the limit to the master, which enforces it, before the job can hang."""
        self._frames.write(Kind.LIMIT, delivery, SECONDS.pack(seconds))

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


def _set_signals() -> None:
    """Ignore the signals that a terminal or a supervisor sends to all processes: the master ends workers.

    Empty handlers, not SIG_IGN, which programs that a job starts would inherit. SIGALRM is ignored because an
    alarm that a job has set may expire after the job.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    show_stacks()
