"""The fork server: imports the application once and forks workers when the master asks.

A process of its own, started by the master with ``python -m``. One thread; it opens no Redis connection and
runs no job. It reaps its workers, and ends with the master.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from contextlib import suppress
from importlib import import_module

from pyworkers import control, logs
from pyworkers.app import Worker
from pyworkers.control import Exited, Load, Loaded, LoadFailed, RunHooks, Settings, Spawn, Spawned, Word
from pyworkers.errors import PyworkersError
from pyworkers.worker import child
from pyworkers.worker.lifeline import die_with

log = logs.get_logger()


class ForkServer:
    """Serves one control socket until its other end is closed."""

    def __init__(self, channel: socket.socket, lifeline: int) -> None:
        self._channel = channel
        self._lifeline = lifeline
        self._reader = control.LineReader()
        self._descriptors: deque[int] = deque()
        self._workers: dict[int, int] = {}
        self._app: Worker | None = None
        self._settings = Settings()

    def serve(self) -> None:
        """Answer the master until it hangs up."""
        wakeup, waker = os.pipe()
        for fd in (wakeup, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        try:
            while True:
                readable, _, _ = select.select([self._channel.fileno(), wakeup], [], [])
                if wakeup in readable:
                    os.read(wakeup, 4096)
                    self._reap()
                if self._channel.fileno() in readable and not self._listen():
                    return
        except BrokenPipeError:
            return

    def _listen(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._channel, 65536, 16 * control.FDS_PER_SPAWN)
        self._descriptors.extend(descriptors)
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

    def _say(self, word: Word) -> None:
        self._channel.sendall(control.dump(word))

    def _load(self, load: Load) -> None:
        self._log = load
        set_up_logs(load)
        sys.path[:0] = [entry for entry in load.path if entry not in sys.path]
        self._settings = Settings(**load.settings)
        started = time.perf_counter()
        try:
            self._app = import_app(load.app)
            manifest = self._app.manifest()
            for hook in self._app.hooks("before_start"):
                hook()
        except BaseException as error:
            kind = "config" if isinstance(error, PyworkersError) and error.exit_code == 2 else "import"
            self._say(LoadFailed(kind, f"{type(error).__name__}: {error}", traceback.format_exc()))
            return
        threads = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        # What is alive now is shared with every worker: keep the collector from touching its pages.
        gc.collect()
        gc.freeze()
        self._say(Loaded(manifest, threads, round((time.perf_counter() - started) * 1000)))

    def _spawn(self, spawn: Spawn) -> None:
        jobs, outcomes, lifeline = (self._descriptors.popleft() for _ in range(control.FDS_PER_SPAWN))
        assert self._app is not None
        pid = os.fork()
        if pid == 0:
            self._become_child()
            pipes = child.Pipes(jobs, outcomes, lifeline)
            set_up_logs(self._log)
            child.main(self._app, spawn.queue, pipes, self._settings)
        for fd in (jobs, outcomes, lifeline):
            os.close(fd)
        self._workers[pid] = spawn.worker
        self._say(Spawned(spawn.worker, pid))

    def _run_hooks(self, kind: str) -> None:
        assert self._app is not None
        hooks = self._app.hooks(kind)
        if not hooks or os.fork() != 0:
            return
        lifeline = os.dup(self._lifeline)
        self._become_child()
        os.close(lifeline)
        status = 0
        for hook in hooks:
            try:
                hook()
            except BaseException:
                log.exception("hook.failed", hook=kind)
                status = 1
        child.exit_now(status)

    def _become_child(self) -> None:
        """Forget what belongs to the fork server alone."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._channel.close()
        for fd in self._descriptors:
            os.close(fd)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker = self._workers.pop(pid, None)
            if worker is not None:
                _kill_group(pid)
                self._say(Exited(worker, pid, status, _peak_kb(usage)))


def set_up_logs(load: Load) -> None:
    """Log as the master does, with the pid of this process in every line."""
    logs.configure(load.log_level, load.log_format, identity=load.identity, pid=os.getpid())


def import_app(spec: str) -> Worker:
    """The Worker at ``module:attribute``. Whatever the import raises passes."""
    module_name, _, attribute = spec.partition(":")
    found = import_module(module_name)
    for name in (attribute or "worker").split("."):
        found = getattr(found, name)
    if not isinstance(found, Worker):
        raise TypeError(f"{spec} is a {type(found).__name__}, not a pyworkers.Worker")
    return found


def _kill_group(leader: int) -> None:
    """End what a worker left behind: its children are in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _peak_kb(usage: resource.struct_rusage) -> int:
    return usage.ru_maxrss // 1024 if sys.platform == "darwin" else usage.ru_maxrss


def main() -> None:
    """``python -m pyworkers.worker.forkserver CHANNEL LIFELINE``: two inherited descriptors."""
    channel, lifeline = int(sys.argv[1]), int(sys.argv[2])
    die_with(lifeline)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        # Not SIG_IGN, which programs started by the application would inherit.
        signal.signal(number, lambda *_: None)
    ForkServer(socket.socket(fileno=channel), lifeline).serve()


if __name__ == "__main__":
    main()
