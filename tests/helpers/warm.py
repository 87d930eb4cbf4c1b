"""Warm start: a Python program as a fork of an interpreter that has imported what it needs already.

An import of pyworkers is half a second of CPU, and the tests start a thousand servers. A test of the start
itself has the environment ``COLD``: with it, and with any other that an interpreter reads before it runs
code, a new one is executed.

A *template* is a process with one thread, which opens nothing, and forks when asked. Each process of pytest
has one for each set of imports.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import gc
import importlib
import io
import json
import logging
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import redis.utils

from pyworkers import failpoints

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = (
    "pyworkers.cli.run",
    "pyworkers.server.master",
    "pyworkers.worker.forkserver",
    "croniter",
    "uvloop",
)
"""What every server imports, the program of its fork server included; with it, all that this one keeps."""
DJANGO = (
    *SERVER,
    "pyworkers.integrations.django.dashboard",
    "django.contrib.admin.options",
    "django.core.management.commands.migrate",
    "django.db.backends.sqlite3.base",
    "django.contrib.sessions.middleware",
)
"""What a project imports before its settings are known: nine tenths of all."""
COLD = {"PYTHONNOUSERSITE": "1"}
"""The variables of a program that is to be executed, not forked."""
_READ_BY_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_")
_HONOURED = "PYTHONUNBUFFERED"
"""The one of these that a fork honours as well."""
_ASIDE = 512
"""Descriptors that are passed wait from this number on until all others are closed."""


class WarmProcess:
    """A program that the template has forked, with the part of ``Popen`` that tests use."""

    def __init__(self, pid: int, ended: socket.socket, args: Sequence[str]) -> None:
        self.pid = pid
        self.args = args
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, as ``Popen`` has it; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._ended.settimeout(timeout)
            with suppress(TimeoutError, BlockingIOError):
                text = self._ended.recv(16)
                # Without an answer the template itself is gone, and took the exit status along.
                self.returncode = int(text) if text else -signal.SIGKILL
                self._ended.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is known to have ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def read_version_once() -> None:
    """Let redis-py read its version from its metadata once: it does for each connection, 1 ms of CPU."""
    redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


def start(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdout: int,
    stderr: int,
    imports: Sequence[str] = SERVER,
    pass_fds: Sequence[int] = (),
) -> WarmProcess | subprocess.Popen[bytes]:
    """Start ``python`` with these arguments, in its own session, and with no input.

    The arguments begin with ``-m`` and a module, ``-c`` and code, or the file of a program.
    """
    if _needs_an_interpreter(env) or max(pass_fds, default=0) >= _ASIDE:
        return subprocess.Popen(
            [sys.executable, *arguments],
            cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            pass_fds=pass_fds,
        )  # fmt: skip
    return _template(tuple(imports)).fork(arguments, cwd, env, (stdout, stderr, *pass_fds))


def run(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = 60,
    imports: Sequence[str] = SERVER,
) -> subprocess.CompletedProcess[str]:
    """Run ``python`` with these arguments to its end, with no input. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        streams = out.fileno(), err.fileno()
        process = start(arguments, cwd=cwd, env=env, stdout=streams[0], stderr=streams[1], imports=imports)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def _needs_an_interpreter(env: Mapping[str, str]) -> bool:
    """True if a fork would not be what a new interpreter is in this environment."""
    if not hasattr(os, "pidfd_open"):
        return True
    # Another path may have another pyworkers, or a sitecustomize.
    usual = os.environ | {"PYTHONPATH": str(ROOT)}
    return any(
        env.get(name) != usual.get(name)
        for name in {*env, *usual} - {_HONOURED}
        if name.startswith(_READ_BY_THE_INTERPRETER)
    )


class _Template:
    """The parent's end of the template."""

    def __init__(self, imports: Sequence[str]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.helpers.warm import main; main()"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno()), *imports],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self._close)

    def _close(self) -> None:
        self._requests.close()
        self._process.wait()

    def fork(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], inherited: Sequence[int]
    ) -> WarmProcess:
        """Fork; the child has the first two descriptors as its streams, and the others by their numbers."""
        ended, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The environment may be longer than a packet.
        request_text = json.dumps([list(arguments), str(cwd), dict(env), list(inherited[2:])])
        with theirs, _in_memory(request_text) as request:
            fds = [theirs.fileno(), request.fileno(), *inherited]
            socket.send_fds(self._requests, [b"fork"], fds)
            pid = int(self._requests.recv(16))
        return WarmProcess(pid, ended, arguments)


def _in_memory(text: str) -> IO[str]:
    file = os.fdopen(os.memfd_create("request"), "w+", encoding="utf-8", errors="surrogateescape")
    file.write(text)
    file.flush()
    file.seek(0)
    return file


@functools.cache
def _template(imports: tuple[str, ...]) -> _Template:
    return _Template(imports)


# The template's side


def main() -> None:
    """Be the template; in each fork, be the program."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    codes: list[int] = []
    # It runs after the exit functions that the program and its imports register.
    atexit.register(_leave, codes)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    if warmup := sys.modules.get("pyworkers.worker.warmup"):
        warmup.keep_code()
    read_version_once()
    gc.collect()
    gc.freeze()
    arguments = _serve(requests)
    if arguments is not None:
        try:
            _run(arguments)
            codes.append(0)
        except SystemExit as error:
            codes.append(error.code if isinstance(error.code, int) else int(error.code is not None))
            raise
        except Exception:
            codes.append(1)
            raise


def _leave(codes: list[int]) -> None:
    """End a program that has an exit code, without freeing its memory.

    Python would free what the template has made, which copies all the pages of it: 30 ms of CPU.
    """
    if codes:
        # Registered before `_leave`, by an import of this module: `os._exit` would skip it.
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(codes[0] & 0xFF)


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Returns the arguments in a fork, None at the end of the tests."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is requests:
                    message, fds, _, _ = socket.recv_fds(requests, 16, 8)
                    if not message:
                        # The tests have ended, perhaps by a signal: no program outlives them.
                        for running_pid, _ in running.values():
                            os.kill(running_pid, signal.SIGKILL)
                        return None
                    pid = os.fork()
                    if pid == 0:
                        break
                    for fd in fds[1:]:
                        os.close(fd)
                    pidfd = os.pidfd_open(pid)
                    running[pidfd] = pid, socket.socket(fileno=fds[0])
                    selector.register(pidfd, selectors.EVENT_READ)
                    requests.send(str(pid).encode())
                else:
                    pid, ended = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with ended, suppress(OSError):
                        ended.send(str(code).encode())
            else:
                continue
            break
    for _, ended in running.values():
        ended.detach()
    return _become(requests, fds)


def _become(requests: socket.socket, fds: Sequence[int]) -> list[str]:
    """Set up in a fork all that ``Popen`` and a new interpreter would."""
    _, request, stdout, stderr, *passed = fds
    with open(request, encoding="utf-8", errors="surrogateescape", closefd=False) as file:
        arguments, cwd, env, numbers = json.load(file)
    os.setsid()
    for number, stream in enumerate([os.open(os.devnull, os.O_RDONLY), stdout, stderr]):
        os.dup2(stream, number)
    requests.detach()
    aside = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ASIDE) for fd in passed]
    os.closerange(3, _ASIDE)
    for fd, number in zip(aside, numbers, strict=True):
        os.dup2(fd, number)
    os.closerange(_ASIDE, 1024)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if env.get(failpoints.VARIABLE):
        _arm_failpoints()
    unbuffered = bool(env.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = _text(1, unbuffered)
    sys.stderr = _text(2, unbuffered, errors="backslashreplace")
    # As `python -m` has it: the working directory, then PYTHONPATH.
    sys.path[:] = [cwd, str(ROOT), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    sys.orig_argv[:] = [sys.executable, *arguments]
    return list(arguments)


def _arm_failpoints() -> None:
    """Read the failpoints again: modules took the function of an unarmed process at their import."""
    never, armed = failpoints.hit, importlib.reload(failpoints).hit
    for module in list(sys.modules.values()):
        if getattr(module, "hit", None) is never:
            vars(module)["hit"] = armed


def _text(fd: int, unbuffered: bool, errors: str = "strict") -> io.TextIOWrapper:
    raw = io.FileIO(fd, "w", closefd=False)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding="utf-8",
        errors=errors,
        line_buffering=fd == 2 or raw.isatty(),
        write_through=unbuffered,
    )


def _run(arguments: list[str]) -> None:
    """Run the program as an interpreter would with these arguments."""
    first, *rest = arguments
    if first == "-m":
        module, *words = rest
        sys.argv[:] = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    elif first == "-c":
        code, *words = rest
        sys.argv[:] = ["-c", *words]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:] = arguments
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")
