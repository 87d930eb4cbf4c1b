"""The fork server: imports the application once and forks a worker for each request of the master.

A separate process, started by the master (server/generations/launch.py), with one thread. It reaps its
workers, and exits with the master. It opens no Redis connection and runs no job.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.config import carrying, own_redis
from pyworkers.encryption import hand_over, read_keys
from pyworkers.errors import PyworkersError, text_with_class
from pyworkers.ipc import control
from pyworkers.ipc.control import (
    ControlMessage,
    Exited,
    HandlerChain,
    HooksRan,
    Identify,
    Load,
    Loaded,
    LoadFailed,
    RunHooks,
    Settings,
    Spawn,
    Spawned,
    SpawnFailed,
)
from pyworkers.middleware import name_of
from pyworkers.observing.readable import readable
from pyworkers.programs.interpreter import prepare
from pyworkers.programs.shared import check_unpatched, descriptors, left_open
from pyworkers.streams import accept_all_text, open_missing
from pyworkers.worker import output, process, trackers
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime
from pyworkers.worker.chains import Chains
from pyworkers.worker.connection import WorkerSetup
from pyworkers.worker.hygiene import exit_now, flush_output, watch_calls
from pyworkers.worker.importing import advice, kind_of, meant, searched, users_traceback
from pyworkers.worker.process import die_with, set_title
from pyworkers.worker.steps.timelimit import Alarm
from pyworkers.worker.warmup import keep_code, warm_up

# In place of a descriptor for which this process had no room.
_DROPPED = -1

log = logs.get_logger()


class ForkServer:
    """Serves one control socket until its other end is closed."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = control.LineReader()
        self._descriptors: deque[int] = deque()
        self._workers: dict[int, int] = {}
        self._hook_runners: dict[int, str] = {}
        # Empty until the application is imported.
        self._app = Worker()
        self._settings = Settings()
        self._logs = Load("")
        self._wakeup, self._waker = os.pipe()
        # Made for an application with start-up hooks.
        self._permit: process.FailurePermit | None = None

    def serve(self) -> None:
        """Handle the messages of the master until it closes the socket."""
        for fd in (self._wakeup, self._waker):
            os.set_blocking(fd, False)
        self._watch_children()
        # Not select, which takes descriptors up to 1023: the channel has its number from the master, which
        # may have more descriptors open.
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _ in poll.poll()}
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                    self._reap()
                if self._channel.fileno() in ready and not self._receive():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return

    def _watch_children(self) -> None:
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _receive(self) -> bool:
        most = 16 * control.FDS_PER_SPAWN
        data, descriptors, flags, _ = socket.recv_fds(self._channel, 65536, most)
        for fd in descriptors:
            # They arrive inheritable: a program that a job starts would keep its worker's pipes open.
            os.set_inheritable(fd, False)
        if flags & socket.MSG_CTRUNC:
            if len(descriptors) >= control.FDS_PER_SPAWN:
                # It is unknown which pipe belongs to which worker: exit, and the master starts another fork
                # server. Linux never joins the descriptors of two messages.
                raise OSError("too many open files: descriptors were dropped")
            _close(descriptors)
            descriptors = [_DROPPED] * control.FDS_PER_SPAWN
        self._descriptors.extend(descriptors)
        for message in self._reader.feed(data):
            self._handle(message)
        return bool(data)

    def _handle(self, message: ControlMessage) -> None:
        if isinstance(message, Spawn):
            self._spawn(message)
        elif isinstance(message, Load):
            self._load(message)
        elif isinstance(message, RunHooks):
            self._run_hooks(message.kind)
        elif isinstance(message, Identify):
            self._logs = replace(self._logs, identity=message.identity)
            set_up_logs(self._logs)

    def _send(self, message: ControlMessage) -> None:
        self._channel.sendall(control.dump(message))

    def _load(self, load: Load) -> None:
        warm_up(load.log_level)
        self._logs = load
        set_up_logs(load)
        sys.argv[:] = load.argv or sys.argv
        prepare(load.modules, load.path)
        self._settings = Settings(**load.settings)
        own_redis.hand_over(load.redis, load.other_redis, load.elsewhere)
        carrying.hand_over(self._settings.carry)
        started = time.perf_counter()
        before = descriptors()
        try:
            hand_over_keys(load.keys)
            self._app = import_app(load.app)
            manifest = self._app.manifest()
            # Now, so that an invalid file is an error of the load, and all workers share the memory.
            self._app.encryption.keys()
            prepare_types(self._app)
            for hook in () if load.rehearse else self._app.hooks("before_start"):
                hook()
            elsewhere = enqueues_to(self._app, outside=load.rehearse)
            jobs = self._described() if load.describe else {}
            check_unpatched()
            if self._app.hooks("on_startup"):
                self._permit = process.FailurePermit()
        except BaseException as raised:
            self._send(_failure_of(raised, load))
            return
        # The application may have closed some, and a worker's pipe for outcomes would get the number.
        open_missing()
        opened = left_open(before)
        # Set both again: the application may have installed its own SIGCHLD handler and logging.
        self._watch_children()
        set_up_logs(load)
        if not load.rehearse:
            keep_code()
        # Output that is still buffered would be printed by every worker again.
        flush_output()
        threads = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        # Objects that exist now are shared with every worker: keep the collector from writing to their pages.
        gc.collect()
        gc.freeze()
        import_ms = round((time.perf_counter() - started) * 1000)
        loaded = Loaded(manifest, threads, import_ms, elsewhere, opened=opened, jobs=jobs)
        if load.rehearse:
            chains = chains_of(self._app, self._settings)
            client_links = [name_of(link) for link in self._app.client_links]
            loaded = replace(loaded, chains=chains, client_links=client_links)
        self._send(loaded)

    def _described(self) -> dict[str, Any]:
        # Imported for a command alone.
        from pyworkers.typed.describing import described

        handlers = self._app.handlers()
        return described([(one.name, one.queue, one.function) for one in handlers if one.function])

    def _spawn(self, spawn: Spawn) -> None:
        fds = [self._descriptors.popleft() for _ in range(control.FDS_PER_SPAWN)]
        if _DROPPED in fds:
            self._send(SpawnFailed(spawn.worker, "too many open files"))
            return
        jobs, outcomes, lifeline, presence, page = fds
        setup = WorkerSetup(jobs, outcomes, lifeline, presence, page, spawn.member, spawn.slots, spawn.mode)
        if self._permit is not None:
            self._permit.give(time.monotonic())
        try:
            pid = os.fork()
        except OSError as error:
            self._send(SpawnFailed(spawn.worker, str(error)))
        else:
            if pid == 0:
                self._be_worker(spawn.group, setup)
            self._workers[pid] = spawn.worker
            self._send(Spawned(spawn.worker, pid))
        _close(fds)

    def _be_worker(self, group: str, setup: WorkerSetup) -> NoReturn:
        # This must not return: the child would continue as a second fork server.
        try:
            self._become_child()
            process.main(self._app, group, setup, self._settings, self._permit)
        except BaseException:
            log.exception("worker.boot_failed", queue=group)
        finally:
            exit_now(control.BOOT_FAILED)

    def _run_hooks(self, kind: str) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            log.error("hook.failed", hook=kind, error=str(error))
            self._send(HooksRan(kind))
            return
        if pid == 0:
            self._be_hook_runner(kind)
        self._hook_runners[pid] = kind

    def _be_hook_runner(self, kind: str) -> NoReturn:
        status = 1
        try:
            self._become_child()
            if self._permit is not None:
                self._permit.close()
            status = process.run_hooks(self._app.hooks(kind), kind)
        finally:
            exit_now(status)

    def _become_child(self) -> None:
        """In a forked child: close the fork server's descriptors, and undo its handling of SIGCHLD."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._channel.close()
        _close((self._wakeup, self._waker, *self._descriptors))

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if worker := self._workers.pop(pid, None):
                _kill_group(pid)
                self._send(Exited(worker, pid, status, _peak_kb(usage)))
            elif kind := self._hook_runners.pop(pid, None):
                self._send(HooksRan(kind))


def _failure_of(raised: BaseException, load: Load) -> LoadFailed:
    error = readable(raised)
    kind = "config" if isinstance(error, PyworkersError) and error.exit_code == 2 else "import"
    text = f"{text_with_class(error)}{searched(error, load)}{meant(error, load)}"
    return LoadFailed(kind, text, users_traceback(error))


def _close(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        if fd != _DROPPED:
            os.close(fd)


def set_up_logs(load: Load) -> None:
    """Log in the master's format, with its identity."""
    logs.configure(load.log_level, load.log_format, identity=load.identity)


def import_app(spec: str) -> Worker:
    """The Worker at ``module:attribute``. Raises TypeError for another object, and the import's errors."""
    module_name, _, attribute = spec.partition(":")
    found = import_module(module_name)
    for name in (attribute or "worker").split("."):
        found = getattr(found, name)
    if not isinstance(found, Worker):
        near = advice(found, module_name, attribute)
        raise TypeError(f"{spec} is {kind_of(found)}, not a pyworkers.Worker{near}")
    return found


def hand_over_keys(path: str) -> None:
    """Read the keys for encrypted arguments. Raises ConfigError."""
    if path:
        keys = read_keys(Path(path))
        hand_over(lambda: keys)


def prepare_types(app: Worker) -> None:
    """Make the codecs of typed parameters before the first fork; log the annotations that cannot be used."""
    for handler in app.handlers():
        for parameter, reason in handler.arguments.prepare() if handler.arguments else ():
            log.warning("types.ignored", job=handler.name, parameter=parameter, reason=reason)


def enqueues_to(app: Worker, *, outside: bool) -> dict[str, str]:
    """The ``[redis]`` fields with which the application enqueues in jobs, or ``outside`` of them.

    A field ``error`` instead, if their values are invalid.
    """
    if outside:
        own_redis.hand_over(None)
    try:
        return asdict(app.redis_config())
    except PyworkersError as error:
        return {"error": str(error)}


def chains_of(app: Worker, settings: Settings) -> list[HandlerChain]:
    """The chain of every handler, built as a worker process builds it."""
    runtime = Runtime(Bridge(), settings.max_retries, time.time, random.Random(), timer=Alarm)
    chains = Chains(app, settings, runtime)
    return [
        {
            "handler": handler.name,
            "queue": handler.queue,
            "links": list(chains.build(handler.queue, handler).steps),
        }
        for handler in app.handlers()
    ]


def _kill_group(leader: int) -> None:
    """Kill the processes that are still in the process group of an exited worker."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _peak_kb(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss // 1024 if sys.platform == "darwin" else usage.ru_maxrss


def main(channel: int, lifeline: int) -> None:
    """Run a fork server with two inherited descriptors until the master closes them."""
    for fd in (channel, lifeline):
        os.set_inheritable(fd, False)
    die_with(lifeline)
    accept_all_text()
    set_title("fork server")
    trackers.spare()
    output.set_up()
    watch_calls()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGUSR2):
        # Not SIG_IGN: programs that the application starts would inherit it.
        signal.signal(number, lambda *_: None)
    # The master starts this process with signals blocked; jobs and their programs must not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with socket.socket(fileno=channel) as connection:
        ForkServer(connection).serve()
