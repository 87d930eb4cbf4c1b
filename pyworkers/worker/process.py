"""The worker process: reads jobs from its pipe, runs them through the chain, writes outcomes.

Forked by the fork server, in a session of its own. It never talks to Redis on behalf of the server, and never
acknowledges anything: it only says what should become of a job.
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
from pyworkers.errors import BadMessageError, JobTimeout, UnknownJobError, WorkerLost
from pyworkers.failpoints import hit, hit_amid
from pyworkers.handler import Handler
from pyworkers.ipc.control import Settings
from pyworkers.ipc.frames import SECONDS, Kind, Reader, pack
from pyworkers.middleware import CallNext
from pyworkers.protocol import envelope, retry
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Fate, Loss, Outcome, Report
from pyworkers.worker.chain import chain_for
from pyworkers.worker.hygiene import Snapshot, flush_output, show_stacks
from pyworkers.worker.interrupts import EndRequests
from pyworkers.worker.leftovers import end_programs
from pyworkers.worker.lifeline import die_with
from pyworkers.worker.limits import limited
from pyworkers.worker.links.retry import exhausted_hooks, run_exhausted
from pyworkers.worker.links.stats import Stats
from pyworkers.worker.recycle import Recycler
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
    """Be a worker until the job pipe is closed, then exit."""
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
    """Call all hooks, whichever fail; the exit status of a process that has nothing else to do."""
    status = 0
    for hook in hooks:
        try:
            hook()
        except BaseException:
            log.exception("hook.failed", hook=kind)
            status = 1
    return status


def exit_now(status: int) -> NoReturn:
    """Leave without the cleanup of the fork server, whose state this is a copy of."""
    try:
        flush_output()
    finally:
        os._exit(status)


class WorkerProcess:
    """One worker of one queue."""

    def __init__(self, app: Worker, queue: str, pipes: Pipes, settings: Settings) -> None:
        self._app = app
        self._queue = queue
        self._pipes = pipes
        self._settings = settings
        self._rng = random.Random()
        self._stats = Stats()
        self._recycler = Recycler(settings.max_jobs_per_worker, settings.max_memory_mb, self._rng)
        # What runs a job, and the name of its handler. The handler of a whole queue has one, whatever classes
        # the payloads name: there is no end of them.
        self._chains: dict[str, tuple[CallNext, str]] = {}
        self._one_handler = app.owns(queue)
        self._delivery = 0
        self._numbers = app.handler_numbers()
        self._end_requests = EndRequests(self._end_programs)
        self._state = Snapshot()

    def serve(self) -> None:
        """Run jobs until the master closes the pipe, or until it is time for a fresh process."""
        self._write(pack(Kind.READY, os.getpid()))
        reader = Reader()
        while data := os.read(self._pipes.jobs, reader.wanted):
            for kind, delivery, payload in reader.feed(data):
                self._delivery = delivery
                hit("job_start")
                report = self._execute(payload) if kind is Kind.JOB else self._tell_exhausted(payload)
                hit("job_end")
                if self._state.is_copy:
                    # A job has forked, and both have come back from it: one worker is enough.
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

    def _execute(self, raw: bytes) -> Report:
        self._end_requests.begin()
        try:
            message = Message.parse(raw, self._queue, self._make_jid)
        except BadMessageError as error:
            fields = {"queue": self._queue, "error_class": "BadMessageError", "error": error.message}
            log.error("job.failed", outcome="dead", **fields)
            payload = retry.refused(raw, error.message, self._queue, time.time())
            return Report(Outcome(Fate.DEAD, payload=payload))
        chain, name = self._chain(message.job_class)
        return Report(chain(message), self._stats.take(), False, name)

    def _chain(self, job_class: str) -> tuple[CallNext, str]:
        key = "" if self._one_handler else job_class
        chain = self._chains.get(key)
        if chain is None:
            try:
                handler = self._app.lookup(self._queue, job_class)
            except UnknownJobError:
                return self._build(None), ""
            chain = self._chains[key] = self._build(handler), handler.name
        return chain

    def _build(self, handler: Handler | None) -> CallNext:
        default_s = self._settings.timeouts.get(self._queue)
        if default_s is None:
            default_s = (handler.timeout if handler else None) or 0.0
        return chain_for(
            self._app,
            handler,
            self._stats,
            max_retries=self._settings.max_retries,
            clock=time.time,
            rng=self._rng,
            inner=(
                self._end_requests.around,
                lambda call: limited(call, default_s, self._announce_limit, self._end_requests.ask),
            ),
        )

    def _announce_limit(self, seconds: float) -> None:
        """Tell the master, which enforces the limit, before the job can hang."""
        self._write(pack(Kind.LIMIT, self._delivery, SECONDS.pack(seconds)))

    def _end_programs(self) -> None:
        """What a job started ends with it if it was asked to end.

        Then another process takes the next job: a program that started meanwhile may have been started for
        the worker, by a thread or a program of an ``on_startup`` hook.
        """
        if self._state.is_copy:
            return
        if killed := end_programs(time.monotonic() - self._stats.started_s):
            log.warning("programs.killed", pids=killed, hint="their job was asked to end")
            self._recycler.retire()

    def _tell_exhausted(self, payload: bytes) -> Report:
        """Run the exhaustion hooks of a job whose own worker cannot, because it died."""
        loss = Loss.unpack(payload)
        message = Message.parse(loss.raw, self._queue, self._make_jid)
        try:
            handler = self._app.lookup(self._queue, message.job_class)
        except UnknownJobError:
            handler = None
        kind = JobTimeout if loss.error_class == JobTimeout.__name__ else WorkerLost
        run_exhausted(exhausted_hooks(self._app, handler), message, kind(loss.error_message))
        return Report(DONE)

    def _make_jid(self) -> str:
        return envelope.new_jid(self._rng)

    def _write(self, data: bytes) -> None:
        data = hit_amid("mid_frame", self._pipes.outcomes, data)
        sent = os.write(self._pipes.outcomes, data)
        if sent < len(data):
            rest = memoryview(data)[sent:]
            while rest:
                rest = rest[os.write(self._pipes.outcomes, rest) :]


def _set_signals() -> None:
    """Deaf to what a terminal or a supervisor sends to everybody: the master decides when a worker ends.

    Handlers, not SIG_IGN: programs that a job starts would inherit the latter. SIGALRM has one for alarms
    that a job leaves behind.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    show_stacks()
