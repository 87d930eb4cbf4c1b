"""Family: the processes below a worker, wherever they have put themselves.

Used by the master when it kills a worker. A program that a job started in a session of its own is in no group
that could be killed with the worker's, but it is still a descendant, as long as its parents live; and without
them it is still marked.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from pyworkers import programs


def kill_family(pid: int, job_age_s: float | None = None) -> None:
    """End a process, its group, all below it, and what its job has started, now.

    ``job_age_s`` is for how long the job has run, if there is one. Where there is no /proc, the group alone.
    """
    found = programs.below(pid)
    if job_age_s is not None:
        found += programs.started_by(pid, (os.getpid(),), programs.tick(job_age_s))
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for program in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(program, signal.SIGKILL)
