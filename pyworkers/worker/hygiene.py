"""Hygiene: what one job changes about its process does not reach the next job.

Runs in the worker process, after each job, in about five microseconds: what costs no more than a look is put
back unseen. It covers what belongs to the whole process; what a job does to the application's own modules is
the application's business.
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
from typing import Any

_STDERR = 2
_stdout = select.poll()
_stdout.register(1, select.POLLOUT)
# The classic signals. The real-time ones have no meaning of their own, and would double the price.
_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
# What signal.getsignal wraps, which makes an enum of each result, and takes 30 µs for all of them.
_handler_of = _signal.getsignal
_set_mask = _signal.pthread_sigmask

Handlers = tuple[Callable[[int, FrameType | None], Any] | int | None, ...]


class Snapshot:
    """The state of this process as every job shall find it: that of the moment in which this was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._directory = _open_directory()
        self._umask = os.umask(0o022)
        os.umask(self._umask)
        self._environ = os.environ
        self._variables = _variables().copy()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = _handlers()
        self._streams = _streams()

    def restore(self) -> bool:
        """Undo what the job has changed; False when that is not possible, and only a new process will do."""
        os.umask(self._umask)
        if _handlers() != self._handlers:
            self._restore_handlers()
        _set_mask(signal.SIG_SETMASK, self._mask)
        if os.environ is not self._environ or _variables() != self._variables:
            self._restore_environ()
        if _streams() != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        return self._restore_directory() and flush_output()

    @property
    def is_copy(self) -> bool:
        """True in a process that a job has forked, and that has come back from the job as well."""
        return os.getpid() != self._pid

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
            # None is a handler that Python does not know, and that the job cannot have come by.
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
    """Have SIGTTIN and deadly signals write the stacks to stderr: from C, so also where a call hangs."""
    faulthandler.disable()
    faulthandler.enable(file=_STDERR)
    faulthandler.unregister(signal.SIGTTIN)
    faulthandler.register(signal.SIGTTIN, file=_STDERR, all_threads=True, chain=False)


def _open_directory() -> int | None:
    """The working directory; None where it cannot be opened, and so cannot be returned to."""
    with suppress(OSError):
        return os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    return None


def _variables() -> dict[bytes, bytes]:
    """What os.environ keeps: comparing its public face decodes every name and value, and takes 30 µs."""
    variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return variables


def _handlers() -> Handlers:
    return tuple(map(_handler_of, _SIGNALS))


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def flush_output() -> bool:
    """Let out what was printed, unless nobody takes it now; False if a stream is closed."""
    # A pipe that is full: waiting here would keep an outcome back. It goes out with what comes later.
    if not _stdout.poll(0):
        return True
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except ValueError:
        return False
    except (OSError, AttributeError):  # nobody reads it; or there is none, for the server was started so
        return True
    return True
