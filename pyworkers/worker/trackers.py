"""Trackers: has multiprocessing's resource tracker outlive the process whose resources it frees.

Set up in the fork server, before the application is imported; workers inherit it. The tracker frees shared
memory and semaphores once no process holds its pipe. Python starts it in the process group of its user, which
the server kills as a whole, so here it gets its own session. It is imported by nothing here: a process
without multiprocessing has no tracker.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pyworkers.programs import TRACKER

# It starts the tracker, and the processes of the start methods "spawn" and "forkserver".
_STARTER = "multiprocessing.util"


def spare() -> None:
    """Start trackers in their own session from now on."""
    if _STARTER in sys.modules:
        _wrap(sys.modules[_STARTER])
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Wraps the starter once it is imported, and is gone by then."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != _STARTER:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader)
        return spec


class _Wrapping(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _wrap(module)


def _wrap(starter: Any) -> None:
    start = getattr(starter, "spawnv_passfds", None)
    if start is None:
        return

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
