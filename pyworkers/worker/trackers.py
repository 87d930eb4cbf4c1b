"""Trackers: has multiprocessing's resource tracker outlive the process whose resources it frees.

Set up in the fork server, before the application is imported; workers inherit it. The tracker frees shared
memory and semaphores once no process holds its pipe. Python starts it in the process group of its user, which
the server kills as a whole, so here it gets its own session. A process without shared resources has no
tracker.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from multiprocessing import util
from typing import Any

from pyworkers.programs import TRACKER


def spare() -> None:
    """Start trackers in their own session from now on."""
    # It starts the tracker, and the processes of the start methods "spawn" and "forkserver".
    starter: Any = util
    start = starter.spawnv_passfds

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Sequence[int]) -> int:
        if not any(TRACKER in str(argument) for argument in args):
            pid: int = start(path, args, passfds)
            return pid
        process = subprocess.Popen(
            args,
            executable=path,
            pass_fds=passfds,
            # As multiprocessing: the tracker is started with signals blocked until it ignores them.
            restore_signals=False,
            start_new_session=True,
        )
        # multiprocessing waits for it by its pid.
        process.returncode = 0
        return process.pid

    starter.spawnv_passfds = spawnv_passfds
