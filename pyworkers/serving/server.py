"""Server: the child process that serves, as its parent sees it.

Used in the program that serves; ``pyworkers.server.owned`` is the other side.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import simplejson

from pyworkers import errors
from pyworkers.config.fields import Config
from pyworkers.config.stores import Stores
from pyworkers.enqueueing.interception import intercept
from pyworkers.errors import AppImportError, PyworkersError
from pyworkers.programs.interpreter import interpreter_flags
from pyworkers.serving.naming import import_path
from pyworkers.store.routes import Routes

# Beyond its ``shutdown_timeout`` a server kills its workers, gives their jobs back and stops its Redis.
_GRACE_S = 60.0
_TAIL = 4000


class Server:
    """A server that runs in a child process. Made by ``serve``."""

    def __init__(self, config: Config, log: Path | None) -> None:
        """Start it, and wait until it runs. Raises what it said if it does not, and OSError."""
        self.config = config
        """Its configuration."""
        self._log = log
        self._parent = os.getpid()
        self._process, self._channel = _started(log)
        try:
            self._channel.sendall(pickle.dumps(config))
            with self._channel.makefile("rb") as answer:
                self._check(answer.readline())
        except BaseException:
            self._channel.close()
            self._process.kill()
            self._process.wait()
            raise

    def __repr__(self) -> str:
        return f"<Server of {self.config.app}, pid {self.pid}>"

    @property
    def pid(self) -> int:
        """The pid of the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Stop it as ``pyworkers stop`` does, and return when it has ended.

        Running jobs get ``server.shutdown_timeout`` seconds to finish. A second call does nothing, nor does
        one in a fork of the program. Raises PyworkersError if the server has failed.
        """
        if os.getpid() != self._parent or self._channel.fileno() < 0:
            return
        try:
            self._process.terminate()
            code = self._process.wait(self.config.server.shutdown_timeout + _GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        finally:
            self._channel.close()
        if code:
            raise self._failure(f"the server has failed: {_end(code)}")

    @contextmanager
    def redirect(self) -> Iterator[None]:
        """Send what every client of this process enqueues to the Redis of this server.

        ``status``, ``result`` and batches are read there, too.
        """
        with closing(Routes(Stores.of(self.config))) as routes:
            previous = intercept(routes)
            try:
                yield
            finally:
                intercept(previous)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except PyworkersError:
            # The error of the block is the one to see.
            if error is None:
                raise

    def _check(self, line: bytes) -> None:
        """Raise what the server said, unless that is that it runs."""
        if not line:
            raise self._failure(f"the server has failed at its start: {_end(self._process.wait())}")
        if said := simplejson.loads(line):
            raise _error(said)

    def _failure(self, message: str) -> PyworkersError:
        tail = self._log.read_text(errors="replace")[-_TAIL:].strip() if self._log else ""
        return PyworkersError(message, hint=f"the end of {self._log}:\n{tail}" if tail else "")


def _started(log: Path | None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process of a server, and the socket to it."""
    ours, theirs = map(_beyond_streams, socket.socketpair())
    try:
        with theirs, Path(os.devnull if log is None else log).open("ab") as file:
            return _child(theirs.fileno(), None if log is None else file), ours
    except BaseException:
        ours.close()
        raise


def _beyond_streams(end: socket.socket) -> socket.socket:
    """The same end with another number: a program may have closed its standard streams."""
    with end:
        return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))


def _child(channel: int, output: BinaryIO | None) -> subprocess.Popen[bytes]:
    # It is not the process that systemd waits for.
    env = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    env["PYTHONPATH"] = os.pathsep.join(import_path())
    return subprocess.Popen(
        # -P: without the working directory in front, where another module may have the name.
        [sys.executable, *interpreter_flags(), "-P", "-m", "pyworkers.server.owned", str(channel)],
        pass_fds=(channel,),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        # Otherwise Ctrl-C in the terminal would stop it, and `stop` again.
        start_new_session=True,
    )


def _error(said: dict[str, Any]) -> PyworkersError:
    """The error that a server has sent; its traceback is a note."""
    message, hint, location = said["message"], said["hint"], said["location"]
    error: PyworkersError
    if said["error"] == AppImportError.__name__:
        error = AppImportError(message, traceback=said["traceback"])
        error.add_note(said["traceback"])
        return error
    kind = getattr(errors, said["error"], PyworkersError)
    known = kind if kind.__init__ is PyworkersError.__init__ else PyworkersError
    return known(message, hint=hint, location=location)


def _end(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
