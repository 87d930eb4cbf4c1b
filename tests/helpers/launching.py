"""Fork servers that a test launches by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

from pyworkers.ipc.control import Load
from pyworkers.programs.interpreter import Interpreter
from pyworkers.server.generations import launch
from pyworkers.server.generations.launch import ChildProcess, Launched, execute
from pyworkers.version import __version__
from tests.helpers import warm
from tests.helpers.support import ROOT


def launched_anew(load: Load, **environment: str) -> Launched:
    """A fork server in a new interpreter, as after a reload."""
    return Launched(load, os.environ | environment, partial(execute, Interpreter.of_this_process()))


def launched_warm(load: Load) -> Launched:
    """A fork server as after a reload, without the half second in which it imports pyworkers."""
    return Launched(load, os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}, fork_warm)


def fork_warm(channel: int, lifeline: int, env: Mapping[str, str]) -> ChildProcess:
    """Start a fork server as a fork of a process that has imported pyworkers: in place of ``execute``."""
    _, *flags_and_code = Interpreter.of_this_process().command(
        launch._PROGRAM, channel, lifeline, __version__
    )
    code = flags_and_code[flags_and_code.index("-c") :]
    process = warm.start(code, cwd=Path.cwd(), env=env, stdout=1, stderr=2, pass_fds=(channel, lifeline))
    return cast("ChildProcess", _Child(process))


class _Child:
    """A fork server that is no child of this process: no reaper collects its exit status."""

    def __init__(self, process: warm.WarmProcess | subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.wait = process.wait
        self._poll = process.poll

    @property
    def returncode(self) -> int | None:
        return self._poll()

    def collected(self, status: int) -> None:
        """Nothing is collected."""
