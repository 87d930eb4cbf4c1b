"""Launch: starts fork servers, by a fork of the server itself or in a new interpreter.

Used by the master; needs no event loop. The first fork server is forked from the server as it starts: it
shares the memory of all modules that both have imported, and does not wait for the start of a second
interpreter. Later ones run in a new interpreter: a process with an event loop, and perhaps with threads, must
not fork, and a reload must import all modules as they are on disk.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn, Protocol

from pyworkers import logs
from pyworkers.ipc import control
from pyworkers.programs.interpreter import Interpreter
from pyworkers.version import __version__

# A name, not an import, because the master imports no module of the worker's side.
_FORK_SERVER = "pyworkers.worker.forkserver"
# The program of a later fork server; text, because the file may be another one by then. What is installed may
# be of any version: until that is known, nothing of it is called. A refusal has the form of ipc.control.
_PROGRAM = """
channel, lifeline, version = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def refuse(kind, message, traceback):
    import json, os
    fields = {"kind": kind, "message": message, "traceback": traceback}
    os.write(channel, json.dumps(["LoadFailed", fields]).encode() + b"\\n")
    raise SystemExit(1)
try:
    from pyworkers.version import __version__
    if __version__ != version:
        found = f"pyworkers {__version__} is installed, but this server is {version}"
        refuse("config", f"{found}: send it USR2", "")
    from pyworkers.worker.forkserver import main
except Exception as error:
    import traceback
    refuse("import", f"{type(error).__name__}: {error}", traceback.format_exc())
main(channel, lifeline)
"""


class ChildProcess(Protocol):
    """A child process; ``returncode`` is None until its exit status has been collected."""

    pid: int
    returncode: int | None

    def wait(self) -> int:
        """Wait for its end."""

    def collected(self, status: int) -> None:
        """Note the exit status, as from waitpid, which the reaper has collected."""


Launch = Callable[[int, int, Mapping[str, str]], ChildProcess]
"""``(channel, lifeline, environment)`` → the process, which inherits the two descriptors. Raises OSError."""


class Executed(subprocess.Popen[bytes]):
    """A child that runs a new interpreter."""

    def collected(self, status: int) -> None:
        """Note the exit status, as from waitpid, which the reaper has collected."""
        self.returncode = os.waitstatus_to_exitcode(status)


class Forked:
    """A child that is a copy of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end, unless its exit status has been collected."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def collected(self, status: int) -> None:
        """Note the exit status, as from waitpid, which the reaper has collected."""
        self.returncode = os.waitstatus_to_exitcode(status)


def execute(interpreter: Interpreter, channel: int, lifeline: int, env: Mapping[str, str]) -> ChildProcess:
    """Start a fork server in a new interpreter."""
    return Executed(
        interpreter.command(_PROGRAM, channel, lifeline, __version__),
        pass_fds=(channel, lifeline),
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def fork(channel: int, lifeline: int, env: Mapping[str, str]) -> ChildProcess:
    """Start a fork server as a copy of this process, which must have one thread and no event loop."""
    # Imported before the fork, so that both processes share the memory of these modules.
    main = import_module(_FORK_SERVER).main
    for stream in (sys.stdout, sys.stderr):
        # Otherwise both processes would print the buffered output.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # A garbage collection writes into every object, which copies the shared pages: exclude the present ones.
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _become(main, channel, lifeline, env)
    return Forked(pid)


def _become(
    main: Callable[[int, int], None], channel: int, lifeline: int, env: Mapping[str, str]
) -> NoReturn:
    """Run the fork server in the forked child. It must not return, or both processes would run the server."""
    status = 1
    try:
        os.setsid()
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # The log keeps a descriptor that is closed below, and would later close another file of that number.
        logs.reset()
        _close_others({0, 1, 2, channel, lifeline})
        main(channel, lifeline)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _close_others(kept: Iterable[int]) -> None:
    for fd in set(_open_files()).difference(kept):
        # The one by which they were listed is closed by now.
        with suppress(OSError):
            os.close(fd)


def _open_files() -> Iterable[int]:
    """The descriptors of this process. The limit may be a billion, and not each system has close_range(2)."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        with suppress(OSError):
            return [int(entry.name) for entry in Path(folder).iterdir()]
    return range(os.sysconf("SC_OPEN_MAX"))


class Launched:
    """A launched fork server: its process, the channel to it and its lifeline.

    It imports the application without waiting for the event loop of the master.
    """

    def __init__(self, load: control.Load, env: Mapping[str, str], launch: Launch) -> None:
        """Start the process and request the import of the application. Raises OSError."""
        self.at = time.monotonic()
        """When it was launched, in monotonic seconds."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        lifeline_end, lifeline = os.pipe()
        self._lifeline = Lifeline(lifeline)
        try:
            self.process = launch(theirs.fileno(), lifeline_end, env)
        except OSError:
            self.channel.close()
            self._lifeline.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline_end)
        self._send(load)
        self.channel.setblocking(False)

    def _send(self, load: control.Load) -> None:
        try:
            self.channel.sendall(control.dump(load))
        except OSError:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process now, by its lifeline; a second call does nothing."""
        self.channel.close()
        self._lifeline.close()
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)


class Lifeline:
    """The master's end of a pipe, ``fd``: when it is closed, the kernel kills the process at the other end.

    Each fork server and each worker has one. Nothing is ever written to it. The process at
    the other end calls ``die_with`` (worker/process.py).
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close it, which kills the process and its group; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
