"""Hygiene: undoes the changes that a job made to its process, before the next job.

Runs in the worker process after each job and takes about five microseconds: a value that is as cheap to set
as to compare is set without a comparison. Restores process-wide state, never the application's modules.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import faulthandler
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

_STDERR = 2
_stdout = select.poll()
_stdout.register(1, select.POLLOUT)
# The standard signals. Real-time signals have no predefined meaning, and would double the time.
_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
# signal.getsignal makes an enum of each result and takes 30 µs for all; this is the function that it wraps.
_handler_of = _signal.getsignal
_set_mask = _signal.pthread_sigmask
# The number: to convert the enum's member takes time.
_SETMASK = int(signal.SIG_SETMASK)

Handlers = tuple[Callable[[int, FrameType | None], Any] | int | None, ...]


class Original:
    """The process in which this object was made."""

    def __init__(self) -> None:
        self._is_copy = False
        # Instead of a look at the pid after each job, which is a system call.
        os.register_at_fork(after_in_child=self._become_copy)

    @property
    def is_copy(self) -> bool:
        """True in a child that a job has forked and that also returned from the job's function."""
        return self._is_copy

    def _become_copy(self) -> None:
        self._is_copy = True


class Snapshot(Original):
    """The state of this process when this object was made; ``restore`` returns to it after each job."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = _open_directory()
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._environ = os.environ
        self._variables = _variables().copy()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = _handlers()
        self._streams = _streams()

    def restore(self) -> bool:
        """Undo what the job has changed; False if that is impossible and the process must be replaced."""
        # Each helper that is called here takes as long as the comparison in it.
        os.umask(self._umask)
        if tuple(map(_handler_of, _SIGNALS)) != self._handlers:
            self._restore_handlers()
        _set_mask(_SETMASK, self._mask)
        environ = os.environ
        if environ is not self._environ or environ._data != self._variables:  # type: ignore[attr-defined]
            self._restore_environ()
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        return self._restore_directory() and flush_output()

    def _restore_directory(self) -> bool:
        if self._directory is None:
            return True
        try:
            os.fchdir(self._directory)
        except OSError:
            return False
        return True

    def _restore_handlers(self) -> None:
        for number, ours in zip(_SIGNALS, self._handlers, strict=True):
            # None is a handler that was not set from Python: Python cannot set it again.
            if ours is not None and ours is not _handler_of(number):
                signal.signal(number, ours)
        show_stacks()

    def _restore_environ(self) -> None:
        os.environ = self._environ  # noqa: B003 - the job has put another object there
        for name in _variables().keys() - self._variables.keys():
            del os.environb[name]
        for name, value in self._variables.items():
            if _variables().get(name) != value:
                os.environb[name] = value


def show_stacks() -> None:
    """Have SIGTTIN and fatal signals write all stacks to stderr: from C, so also while a call hangs."""
    faulthandler.disable()
    faulthandler.enable(file=_STDERR)
    faulthandler.unregister(signal.SIGTTIN)
    faulthandler.register(signal.SIGTTIN, file=_STDERR, all_threads=True, chain=False)


def _open_directory() -> int | None:
    """A descriptor of the working directory; None if it cannot be opened."""
    with suppress(OSError):
        return os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    return None


def _variables() -> dict[bytes, bytes]:
    """The dict of bytes inside os.environ. To compare os.environ decodes each name and value: 30 µs."""
    variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return variables


def _handlers() -> Handlers:
    return tuple(map(_handler_of, _SIGNALS))


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def flush_output() -> bool:
    """Flush stdout and stderr, unless stdout is a full pipe; False if a stream is closed."""
    # Do not wait, which would delay the outcome. The text is written after a later job.
    if not _stdout.poll(0):
        return True
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except ValueError:
        return False
    except (OSError, AttributeError):  # no process reads the pipe, or the server was started without a stream
        return True
    return True


def exit_now(status: int) -> NoReturn:
    """Exit without the exit handlers that this process, a fork, has inherited from the fork server."""
    try:
        flush_output()
    finally:
        os._exit(status)
