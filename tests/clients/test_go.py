"""The client for Go: its form, and its own tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.blocks import Block, blocks
from tests.helpers.support import PATIENCE_S


@pytest.mark.parametrize("command", [["gofmt", "-l", "."], ["go", "vet", "./..."]], ids=" ".join)
def test_its_form_is_that_of_go(command: list[str], go: Path) -> None:
    done = subprocess.run(command, cwd=go, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_its_tests_pass(go: Path, client_environment: Mapping[str, str]) -> None:
    command = ["go", "test", "-count=1", "./..."]
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
