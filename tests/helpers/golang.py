"""Programs in Go that the tests build."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

LINKED = "-ldflags=-w"
"""Without tables for debuggers, which take half of the time of the linker."""


def built_once(factory: pytest.TempPathFactory, module: Path, *packages: str) -> Path:
    """The folder with the programs of a module's packages, one for all processes of the suite.

    Raises CalledProcessError, with the output of the compiler.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / f"{module.parent.name}-{module.name}"
    with (shared / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / Path(packages[-1]).name).exists():
            command = ["go", "build", LINKED, "-o", f"{folder}/", *packages]
            subprocess.run(command, cwd=module, check=True, capture_output=True, text=True)
    return folder
