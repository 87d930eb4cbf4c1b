"""The fork server: imports the application once and forks workers when the master asks.

A process of its own, started by the master (launch.py). One thread; it opens no Redis connection and runs no
job. It reaps its workers, and ends with the master.
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
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from typing import NoReturn

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.config import own_redis
from pyworkers.errors import PyworkersError
from pyworkers.ipc import control
from pyworkers.ipc.control import (
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
    Word,
)
from pyworkers.worker import process
from pyworkers.worker.hygiene import flush_output
from pyworkers.worker.importing import searched, users_traceback
from pyworkers.worker.lifeline import die_with
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.title import set_title
from pyworkers.worker.warmup import warm_up

log = logs.get_logger()


class ForkServer:
    """Serves one control socket until its other end is closed."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._reader = control.LineReader()
        self._descriptors: deque[int] = deque()
        self._workers: dict[int, int] = {}
        self._errands: dict[int, str] = {}
        self._app: Worker | None = None
        self._settings = Settings()
        self._logs = Load("")

    def serve(self) -> None:
        """Answer the master until it hangs up."""
        self._wakeup, self._waker = os.pipe()
        for fd in (self._wakeup, self._waker):
            os.set_blocking(fd, False)
        self._watch_children()
        # Not select, whose numbers end at 1023: the channel keeps the one that it had in the master.
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        try:
            while True:
                ready = {fd for fd, _ in poll.poll()}
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                    self._reap()
                if self._channel.fileno() in ready and not self._listen():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return

    def _watch_children(self) -> None:
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _listen(self) -> bool:
        most = 16 * control.FDS_PER_SPAWN
        data, descriptors, flags, _ = socket.recv_fds(self._channel, 65536, most)
        for fd in descriptors:
            # They come inheritable, and a program started by a job would keep its worker's pipes open.
            os.set_inheritable(fd, False)
        self._descriptors.extend(descriptors)
        if flags & socket.MSG_CTRUNC:
            # Which pipe belongs to whom is lost: start again, in a fork server of its own.
            raise OSError("too many open files: descriptors were dropped")
        for word in self._reader.feed(data):
            self._obey(word)
        return bool(data)

    def _obey(self, word: Word) -> None:
        if isinstance(word, Spawn):
            self._spawn(word)
        elif isinstance(word, Load):
            self._load(word)
        elif isinstance(word, RunHooks):
            self._run_hooks(word.kind)
        elif isinstance(word, Identify):
            self._logs = replace(self._logs, identity=word.identity)
            set_up_logs(self._logs)

    def _say(self, word: Word) -> None:
        self._channel.sendall(control.dump(word))

    def _load(self, load: Load) -> None:
        warm_up(load.log_level)
        self._logs = load
        set_up_logs(load)
        sys.path[:0] = [entry for entry in load.path if entry not in sys.path]
        self._settings = Settings(**load.settings)
        own_redis.hand_over(load.redis)
        started = time.perf_counter()
        try:
            self._app = import_app(load.app)
            manifest = self._app.manifest()
            for hook in () if load.rehearse else self._app.hooks("before_start"):
                hook()
        except BaseException as error:
            kind = "config" if isinstance(error, PyworkersError) and error.exit_code == 2 else "import"
            text = f"{type(error).__name__}: {error}{searched(error, load)}"
            self._say(LoadFailed(kind, text, users_traceback(error)))
            return
        # The application may have taken the signal for itself, and set up logs of its own.
        self._watch_children()
        set_up_logs(load)
        # What it printed would be printed by every worker again.
        flush_output()
        threads = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        # What is alive now is shared with every worker: keep the collector from touching its pages.
        gc.collect()
        gc.freeze()
        import_ms = round((time.perf_counter() - started) * 1000)
        loaded = Loaded(manifest, threads, import_ms)
        if load.rehearse:
            chains = chains_of(self._app, self._settings)
            loaded = replace(loaded, elsewhere=enqueues_elsewhere(self._app), chains=chains)
        self._say(loaded)

    def _spawn(self, spawn: Spawn) -> None:
        jobs, outcomes, lifeline = (self._descriptors.popleft() for _ in range(control.FDS_PER_SPAWN))
        try:
            pid = os.fork()
        except OSError as error:
            self._say(SpawnFailed(spawn.worker, str(error)))
        else:
            if pid == 0:
                self._be_worker(spawn.queue, process.Pipes(jobs, outcomes, lifeline))
            self._workers[pid] = spawn.worker
            self._say(Spawned(spawn.worker, pid))
        for fd in (jobs, outcomes, lifeline):
            os.close(fd)

    def _be_worker(self, queue: str, pipes: process.Pipes) -> NoReturn:
        # Nothing may return from here: there would be two fork servers.
        try:
            self._become_child()
            assert self._app is not None
            process.main(self._app, queue, pipes, self._settings)
        except BaseException:
            log.exception("worker.boot_failed", queue=queue)
        finally:
            process.exit_now(process.BOOT_FAILED)

    def _run_hooks(self, kind: str) -> None:
        assert self._app is not None
        try:
            pid = os.fork()
        except OSError as error:
            log.error("hook.failed", hook=kind, error=str(error))
            self._say(HooksRan(kind))
            return
        if pid == 0:
            self._be_errand(kind)
        self._errands[pid] = kind

    def _be_errand(self, kind: str) -> NoReturn:
        status = 1
        try:
            self._become_child()
            assert self._app is not None
            status = process.run_hooks(self._app.hooks(kind), kind)
        finally:
            process.exit_now(status)

    def _become_child(self) -> None:
        """Forget what belongs to the fork server alone."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._channel.close()
        for fd in (self._wakeup, self._waker, *self._descriptors):
            os.close(fd)

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
                self._say(Exited(worker, pid, status, _peak_kb(usage)))
            elif kind := self._errands.pop(pid, None):
                self._say(HooksRan(kind))


def set_up_logs(load: Load) -> None:
    """Log as the master does."""
    logs.configure(load.log_level, load.log_format, identity=load.identity)


def import_app(spec: str) -> Worker:
    """The Worker at ``module:attribute``. Whatever the import raises passes."""
    module_name, _, attribute = spec.partition(":")
    found = import_module(module_name)
    for name in (attribute or "worker").split("."):
        found = getattr(found, name)
    if not isinstance(found, Worker):
        raise TypeError(f"{spec} is a {type(found).__name__}, not a pyworkers.Worker")
    return found


def enqueues_elsewhere(app: Worker) -> dict[str, str]:
    """Where the application enqueues in a program that is no worker, such as a web server."""
    own_redis.hand_over(None)
    try:
        return asdict(app.redis_config())
    except PyworkersError as error:
        return {"error": str(error)}


def chains_of(app: Worker, settings: Settings) -> list[HandlerChain]:
    """The chain of every handler, built as a worker process builds it."""
    chains: list[HandlerChain] = []
    for handler in app.handlers():
        runner = SerialRunner(app, handler.queue, settings, random.Random(), lambda *_: None, lambda _: None)
        links = list(runner.build(handler).links)
        chains.append({"handler": handler.name, "queue": handler.queue, "links": links})
    return chains


def _kill_group(leader: int) -> None:
    """End what a worker left behind: its children are in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _peak_kb(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss // 1024 if sys.platform == "darwin" else usage.ru_maxrss


def main(channel: int, lifeline: int) -> None:
    """Be a fork server, in a session of its own, with two inherited descriptors."""
    for fd in (channel, lifeline):
        os.set_inheritable(fd, False)
    die_with(lifeline)
    set_title("fork server")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        # Not SIG_IGN, which programs started by the application would inherit.
        signal.signal(number, lambda *_: None)
    # The master starts us with its signals blocked; jobs and their programs must not inherit that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ForkServer(socket.socket(fileno=channel)).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
