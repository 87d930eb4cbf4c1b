"""Fork servers that a test launches by itself."""

from __future__ import annotations

import os
from functools import partial

from pyworkers.ipc.control import Load
from pyworkers.programs.interpreter import Interpreter
from pyworkers.server.generations.launch import Launched, execute


def launched_anew(load: Load, **environment: str) -> Launched:
    """A fork server in a new interpreter, as after a reload."""
    return Launched(load, os.environ | environment, partial(execute, Interpreter.of_this_process()))
