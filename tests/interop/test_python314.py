"""CPython 3.14, compiled to WebAssembly: what needs no process and no socket."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.conftest import missing
from tests.helpers.support import ROOT

PEER = Path(__file__).parent / "peers" / "python3.14"
PYODIDE = Path(sys.prefix) / "python3.14" / "node_modules" / "pyodide"


def test_the_names_of_type_checkers_and_later_classes_in_annotations() -> None:
    if not (PYODIDE.exists() and shutil.which("node")):
        missing("CPython 3.14 is not installed: install npm, then make .venv/python3.14")
    packages = sysconfig.get_path("purelib")
    parts = (PEER / "run.mjs", PYODIDE, packages, ROOT, PEER / "program.txt")
    done = subprocess.run(
        ["node", *map(str, parts)], capture_output=True, text=True, check=False, timeout=200
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["Python 3 14: done"]), (
        done.stdout + done.stderr
    )
