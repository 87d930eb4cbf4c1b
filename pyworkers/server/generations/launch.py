"""Launch: the two ways in which a fork server comes into being.

Used by the master. The first one is forked from the server as it starts: it shares the memory of all that
both have imported, and need not wait for a second interpreter. Later ones are executed: a process with an
event loop and perhaps threads is not to be forked, and a reload shall find all modules as they are on disk.
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import NoReturn, Protocol

from pyworkers import logs

# By its name, because nothing of a worker's side is imported on the master's.
_FORK_SERVER = "pyworkers.worker.forkserver"


class Process(Protocol):
    """A child, as ``subprocess.Popen`` has it; ``returncode`` is None until somebody has waited for it."""

    pid: int
    returncode: int | None

    def wait(self) -> int:
        """Wait for its end."""


Launch = Callable[[int, int, Mapping[str, str]], Process]
"""``(channel, lifeline, environment)`` → the process, which inherits the two descriptors. Raises OSError."""


class Forked:
    """A child of ``fork``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end, unless somebody has."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def execute(channel: int, lifeline: int, env: Mapping[str, str]) -> Process:
    """A fork server in a new interpreter."""
    return subprocess.Popen(
        [sys.executable, "-m", _FORK_SERVER, str(channel), str(lifeline)],
        pass_fds=(channel, lifeline),
        env=env,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def fork(channel: int, lifeline: int, env: Mapping[str, str]) -> Process:
    """A fork server that is a copy of this process, which must have one thread and no event loop."""
    # Before the fork: whatever is imported now is shared.
    main = import_module(_FORK_SERVER).main
    for stream in (sys.stdout, sys.stderr):
        # What was printed so far must not be printed by both.
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    # A collection writes into every object, and so would copy them all: let it pass over what lives for ever.
    gc.collect()
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _become(main, channel, lifeline, env)
    return Forked(pid)


def _become(
    main: Callable[[int, int], None], channel: int, lifeline: int, env: Mapping[str, str]
) -> NoReturn:
    """Be what ``execute`` starts. Nothing may return from here: there would be two servers."""
    status = 1
    try:
        os.setsid()
        os.environ.update(env)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # It keeps a descriptor of its own, and would close whatever has that number by then.
        logs.reset()
        _close_others({0, 1, 2, channel, lifeline})
        main(channel, lifeline)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _close_others(kept: Iterable[int]) -> None:
    highest = os.sysconf("SC_OPEN_MAX")
    for before, after in itertools.pairwise([*sorted(kept), highest]):
        os.closerange(before + 1, after)
