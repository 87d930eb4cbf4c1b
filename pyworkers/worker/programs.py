"""Programs: kills the programs that outlive a job which was asked to end.

Runs in the worker process, after a time limit, a cancellation or an interruption, and never otherwise. It
kills programs that started since the job began; older ones belong to the worker or to earlier jobs, and run
on.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from pyworkers import logs, programs

# A killed process exits within milliseconds, unless it is in an uninterruptible call of the kernel.
_PATIENCE_S = 0.5
_PAUSE_S = 0.001
_EMPTY_LOOKS = 2

log = logs.get_logger()


def end_programs(age_s: float, thread: int | None = None) -> bool:
    """Kill the programs that this process has started in the last ``age_s`` seconds; True if there were any.

    With the native id of a ``thread``, only the programs of this thread: orphans belong to no thread. They
    have exited when this returns, except those that cannot be killed.
    """
    since = programs.tick(age_s)
    killed: dict[int, None] = {}
    deadline = time.monotonic() + _PATIENCE_S
    # Search repeatedly: a program may start others until it has exited, and these then become orphans. A
    # search may also miss a child while another one exits (proc(5), children), so one empty result is not
    # enough.
    empty_looks = 0
    while empty_looks < _EMPTY_LOOKS and time.monotonic() <= deadline:
        found = _started(since) if thread is None else programs.started_by_thread(thread, since)
        empty_looks = 0 if found else empty_looks + 1
        if found:
            killed |= dict.fromkeys(found)
            _kill(found)
            time.sleep(_PAUSE_S)
    for pid in killed:
        # Reap it here: the job has ended and cannot wait for its children.
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    if killed:
        log.warning("programs.killed", pids=list(killed), hint="their job was asked to end")
    return bool(killed)


def _started(since: int) -> list[int]:
    # Orphans become children of the master, which is the parent of the fork server or, if the fork server
    # has died, of this process.
    fork_server = os.getppid()
    return programs.started_by(os.getpid(), (fork_server, programs.parent(fork_server)), since)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
