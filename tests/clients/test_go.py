"""The client for Go: its form, and its own tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.blocks import Block, blocks
from tests.helpers.golang import LINKED
from tests.helpers.support import PATIENCE_S


@pytest.mark.parametrize("command", [["gofmt", "-l", "."], ["go", "vet", "./..."]], ids=" ".join)
def test_its_form_is_that_of_go(command: list[str], go: Path) -> None:
    done = subprocess.run(command, cwd=go, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_its_tests_pass(go: Path, client_environment: Mapping[str, str]) -> None:
    command = ["go", "test", "-count=1", "-vet=off", "./..."]
    done = subprocess.run(
        command, cwd=go, env=client_environment, capture_output=True, text=True, timeout=8 * PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", blocks("go", "clients.md"), ids=str)
def test_a_program_of_the_documents_runs(
    block: Block, go: Path, client_environment: Mapping[str, str], tmp_path: Path
) -> None:
    """A comment is what a line prints."""
    program = tmp_path / "main.go"
    program.write_text(block.code)
    done = subprocess.run(
        ["go", "run", str(program)], cwd=go, env=client_environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = [line.partition(") // ")[2] for line in block.code.splitlines() if "fmt.Println" in line]
    assert done.stdout.splitlines() == expected


def test_go_and_python_call_each_other(
    go: Path, client_environment: Mapping[str, str], tmp_path: Path
) -> None:
    """The programs of docs/how-to/worker-in-go.md; a comment is what a line prints."""
    [in_go], [in_python] = (blocks(one, "how-to/worker-in-go.md") for one in ("go", "python"))
    (tmp_path / "main.go").write_text(in_go.code)
    program = tmp_path / "worker"
    subprocess.run(["go", "build", LINKED, "-o", program, str(tmp_path / "main.go")], cwd=go, check=True)
    worker = subprocess.Popen([program], env=client_environment)
    try:
        ran = subprocess.run(
            [sys.executable, "-c", in_python.code],
            env=client_environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert ran.stdout.strip() == in_python.code.strip().rpartition("  # ")[2]
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
        worker.wait()
