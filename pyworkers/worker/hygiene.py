"""Hygiene: undoes the changes that a job made to its process, before the next job.

Runs in the worker process after each job and takes about a microsecond; to read all that it restores takes
ten. Python code changes most of it by a few functions, whose calls are noted (``watch_calls``): after a call,
all is restored. A library may change it without Python, so one value is read after each job, another one
after the next job. Restores what would end or silence the process in a later job, and what has another half
that is restored here; never the application's modules.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import faulthandler
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from pyworkers.ipc.page import STACKS
from pyworkers.worker import output

_STDERR = 2
_stdout = select.poll()
_stdout.register(1, select.POLLOUT)
# The standard signals. Real-time signals have no predefined meaning, and would double the time.
_SIGNALS = tuple(number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP))
# signal.getsignal makes an enum of each result and takes 30 µs for all; this is the function that it wraps.
_handler_of = _signal.getsignal
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# A line "ID: …" for each timer of timer_create(2), where the kernel shows them (CONFIG_CHECKPOINT_RESTORE).
_POSIX_TIMERS = Path("/proc/self/timers")
# All that the platform has, but for the mark of a worker (programs).
_LIMITS = sorted(
    {
        number
        for name, number in vars(resource).items()
        if name.startswith("RLIMIT_") and name != "RLIMIT_RTTIME"
    }
)
# The functions of ``os`` that change what ``_rights`` returns.
_CHANGING_RIGHTS = (
    "setuid", "seteuid", "setreuid", "setresuid", "setgid", "setegid", "setregid", "setresgid", "setgroups",
    "initgroups", "nice", "setpriority", "sched_setaffinity", "chroot",
)  # fmt: skip
# The functions themselves: ``watch_calls`` puts others into the modules.
_get_limit, _set_limit = resource.getrlimit, resource.setrlimit
_set_umask, _set_directory, _set_zone = os.umask, os.fchdir, time.tzset
_set_mask = _signal.pthread_sigmask
# Not empty if Python code has set a signal handler since the last look; or an environment variable; or what
# ``_rights`` returns; or something else.
_set_handlers: list[str] = []
_set_variables: list[str] = []
_set_rights: list[str] = []
_set_others: list[str] = []
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
    """The state of this process when this object was made; ``restore`` returns to it after each job.

    ``stacks``: the file for the stacks of this process when the master asks (``show_stacks``).
    """

    def __init__(self, stacks: int) -> None:
        super().__init__()
        self._stacks = stacks
        self._directory = _open_directory()
        self._umask = _set_umask(0o022)
        _set_umask(self._umask)
        self._environ = os.environ
        self._variables = dict(_variables())
        self._mask = _set_mask(signal.SIG_BLOCK, ())
        self._handlers = _handlers()
        # The timers of the application, such as a profiler's, with their intervals.
        self._timers = tuple(signal.getitimer(number)[1] for number in _TIMERS)
        self._limits = {number: _get_limit(number) for number in _LIMITS}
        self._rights = _rights()
        self._zone = time.tzname, time.timezone
        self._streams = _streams()
        self._are_lines = output.are_lines(sys.stdout, sys.stderr)
        # Not inheritable, as the descriptors that they copy are.
        self._stdout, self._stderr = os.dup(1), os.dup(2)
        self._turns = cycle(self._checks())
        for noted in (_set_handlers, _set_variables, _set_others, _set_rights):
            noted.clear()

    def restore(self) -> bool:
        """Undo what the job has changed; False if that is impossible and the process must be replaced."""
        # Each helper that is called here takes as long as the comparison in it.
        faulthandler.cancel_dump_traceback_later()
        try:
            read, argument, before = next(self._turns)
            changed = read(argument) != before
            os.dup2(self._stdout, 1)
            os.dup2(self._stderr, 2)
        except OSError:
            # The job has closed one of the copies.
            return False
        if (changed or _set_handlers) and not self._undo_handlers():
            return False
        if _set_variables or os.environ is not self._environ:
            self._restore_environ()
        if (changed or _set_others) and not self._restore_others():
            return False
        # Not after other calls: the master, too, changes the CPUs (server/pool/cpus.py).
        if _set_rights and not self._has_rights():
            return False
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams:
            sys.stdin, sys.stdout, sys.stderr = self._streams
        return (self._are_lines and output.is_written()) or flush_output(of_all=True)

    def _checks(self) -> Iterator[tuple[Callable[[int], object], int, object]]:
        """What a library may have changed: a function, its argument, and the result if it has not.

        Umask and directory are set, because that takes no longer.
        """
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            yield _handler_of, number, handler
        for number, limit in self._limits.items():
            yield _get_limit, number, limit
        yield _mask_after, signal.SIG_BLOCK, self._mask
        yield _set_umask, self._umask, self._umask
        if self._directory is not None:
            yield _set_directory, self._directory, None

    def _restore_others(self) -> bool:
        """Restore umask, signal mask, time zone, directory and limits; False if that is impossible."""
        _set_others.clear()
        _set_umask(self._umask)
        _set_mask(_SETMASK, self._mask)
        if (time.tzname, time.timezone) != self._zone:
            _set_zone()
        try:
            if self._directory is not None:
                _set_directory(self._directory)
        except OSError:
            return False
        return self._restore_limits()

    def _has_rights(self) -> bool:
        """False if the process has other rights than before."""
        _set_rights.clear()
        return _rights() == self._rights

    def _undo_handlers(self) -> bool:
        """Restore the signal handlers, and the timers; False if a timer remains that cannot be ended."""
        _set_handlers.clear()
        if _handlers() != self._handlers:
            if _has_posix_timers():
                # Their handlers may raise until this process has ended.
                _set_mask(_SETMASK, _SIGNALS)
                return False
            # The timer of an unchanged handler may run on: that handler is empty (signals.py).
            self._restore_timers()
            self._restore_handlers()
        return True

    def _restore_timers(self) -> None:
        for number, interval_s in zip(_TIMERS, self._timers, strict=True):
            signal.setitimer(number, interval_s, interval_s)

    def _restore_limits(self) -> bool:
        """Restore the limits of resources that the job has lowered; False if that needs root."""
        try:
            for lowered in filter(self._is_lowered, _LIMITS):
                _set_limit(lowered, self._limits[lowered])
        except (OSError, ValueError):
            return False
        return True

    def _is_lowered(self, number: int) -> bool:
        """A job may raise a limit for its process, once."""
        return any(
            now != resource.RLIM_INFINITY and (now < before or before == resource.RLIM_INFINITY)
            for now, before in zip(_get_limit(number), self._limits[number], strict=True)
        )

    def _restore_handlers(self) -> None:
        for number, ours in zip(_SIGNALS, self._handlers, strict=True):
            # None is a handler that was not set from Python: Python cannot set it again.
            if ours is not None and ours is not _handler_of(number):
                signal.signal(number, ours)
        show_stacks(self._stacks)

    def _restore_environ(self) -> None:
        _set_variables.clear()
        os.environ = self._environ  # noqa: B003 - the job has put another object there
        for name in _variables().keys() - self._variables.keys():
            del os.environb[name]
        for name, value in self._variables.items():
            if _variables().get(name) != value:
                os.environb[name] = value


class _Variables(dict[bytes, bytes]):
    """The dict inside os.environ, which notes a change. To compare 35 variables takes a microsecond."""

    def __setitem__(self, name: bytes, value: bytes) -> None:
        if not _set_variables:
            _set_variables.append("set")
        super().__setitem__(name, value)

    def __delitem__(self, name: bytes) -> None:
        if not _set_variables:
            _set_variables.append("deleted")
        super().__delitem__(name)


def watch_calls() -> None:
    """Note from now on that Python code changes what ``Snapshot`` restores.

    In this process and its forks. The modules get other functions, which call theirs.
    """
    for module, name, noted in (
        (signal, "signal", _set_handlers),
        (signal, "pthread_sigmask", _set_others),
        (os, "chdir", _set_others),
        (os, "fchdir", _set_others),
        (os, "umask", _set_others),
        (resource, "setrlimit", _set_others),
        (resource, "prlimit", _set_others),
        (time, "tzset", _set_others),
        *((os, name, _set_rights) for name in _CHANGING_RIGHTS),
    ):
        if (function := getattr(module, name, None)) is not None:  # macOS has no prlimit
            setattr(module, name, _noting(function, noted))
    variables = _Variables(_variables())
    for environ in (os.environ, os.environb):
        vars(environ).update(_data=variables)


def _noting(function: Callable[..., Any], noted: list[str]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not noted:
            noted.append(function.__name__)
        return function(*args, **kwargs)

    return call


def show_stacks(asked: int) -> None:
    """Have signals write all stacks: from C, so also while a call hangs.

    SIGTTIN and fatal signals to stderr; the master's to the descriptor ``asked``.
    """
    faulthandler.disable()
    faulthandler.enable(file=_STDERR)
    for number, file in ((signal.SIGTTIN, _STDERR), (STACKS, asked)):
        faulthandler.unregister(number)
        faulthandler.register(number, file=file, all_threads=True, chain=False)


def _open_directory() -> int | None:
    """A descriptor of the working directory; None if it cannot be opened."""
    with suppress(OSError):
        return os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    return None


def _variables() -> dict[bytes, bytes]:
    """The dict of bytes inside os.environ. To compare os.environ decodes each name and value: 30 µs."""
    variables: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return variables


def _has_posix_timers() -> bool:
    """True if the process has a timer that only its maker can end, such as one made by ctypes."""
    with suppress(OSError):
        return bool(_POSIX_TIMERS.read_bytes())
    return False


def _mask_after(how: int) -> object:
    """The signal mask, after it was changed by no signals."""
    return _set_mask(how, ())


def _handlers() -> Handlers:
    return tuple(map(_handler_of, _SIGNALS))


def _rights() -> tuple[Any, ...]:
    """What a process may, and its share of the machine: a job cannot undo most changes of it."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    root, user, group = Path("/").stat(), (os.getuid(), os.geteuid()), (os.getgid(), os.getegid())
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    return user, group, os.getgroups(), priority, cpus, root.st_dev, root.st_ino


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def flush_output(*, of_all: bool = False) -> bool:
    """Flush stdout and stderr, unless stdout is a full pipe; False if a stream is closed.

    ``of_all``: no job runs, so the lines that any thread has begun are ended.
    """
    # Do not wait, which would delay the outcome. The text is written after a later job.
    if not _stdout.poll(0):
        return True
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        output.finish(of_all=of_all)
    except ValueError:
        return False
    except (OSError, AttributeError):  # no process reads the pipe, or the server was started without a stream
        return True
    return True


def exit_now(status: int) -> NoReturn:
    """Exit without the exit handlers that this process, a fork, has inherited from the fork server."""
    try:
        flush_output(of_all=True)
    finally:
        os._exit(status)
