"""``pyworkers init``: the printed commands, followed to the letter in an empty folder, run a job."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.support import wait_for
from tests.system.test_cli import python_m_pyworkers

COMMAND = re.compile(r"^    (.*)$", re.MULTILINE)


def shell(command: str, folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """A shell that runs the command, with the commands of this environment first on its path."""
    ours = ("PYWORKERS_", "REDIS_", "PYTHONPATH")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    with output.open("ab") as written:
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=env,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )


@pytest.mark.parametrize("folder", [".", "my shop"])
def test_the_printed_commands_run_a_job(tmp_path: Path, folder: str) -> None:
    printed = python_m_pyworkers("init", folder, cwd=tmp_path).stdout
    run, enqueue = COMMAND.findall(printed)
    log = tmp_path / "log"
    server = shell(run, tmp_path, log)
    try:
        wait_for(lambda: "server.started" in log.read_text(), message="the server starts")
        enqueued = shell(enqueue, tmp_path, tmp_path / "enqueued")
        assert enqueued.wait() == 0
        wait_for(lambda: "hello, you" in log.read_text(), message="the job runs")
        # As Ctrl-C in a terminal: the shell gets it, too.
        os.killpg(server.pid, signal.SIGTERM)
        wait_for(lambda: "server.stopped" in log.read_text(), message="the server stops")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine")
    done = python_m_pyworkers("init", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: tasks.py exists, nothing is written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]
    assert (tmp_path / "tasks.py").read_text() == "mine"


def test_init_says_what_it_could_not_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = python_m_pyworkers("init", "file/shop", cwd=tmp_path)
    assert done.returncode == 1
    assert "Error: file/shop cannot be written: Not a directory" in done.stderr
