"""The client for Ruby: its own tests without a warning, and the programs of its documents."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.blocks import Block, blocks
from tests.helpers.support import PATIENCE_S


def test_its_tests_pass(ruby: Path, client_environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["rake", "test"],
        cwd=ruby,
        env=client_environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # Sidekiq and the gems that it needs have some of their own.
    lines = done.stderr.splitlines()
    assert [line for line in lines if str(ruby) in line or line.startswith(("lib/", "test/"))] == []


def test_it_can_be_a_gem(ruby: Path, tmp_path: Path) -> None:
    """Each file that the client reads is in it."""
    gem = tmp_path / "pyworkers.gem"
    build = ["gem", "build", "pyworkers.gemspec", "--output", str(gem)]
    done = subprocess.run(build, cwd=ruby, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(["gem", "spec", gem, "files"], capture_output=True, text=True, check=True).stdout
    files = {str(path.relative_to(ruby)) for path in (ruby / "lib").rglob("*.*")}
    assert files <= {line.removeprefix("- ") for line in listed.splitlines()}


@pytest.mark.parametrize("block", blocks("ruby", "clients.md"), ids=str)
def test_a_program_of_the_documents_runs(
    block: Block, ruby: Path, client_environment: Mapping[str, str]
) -> None:
    """Those of docs/clients.md; a comment is what a line prints."""
    done = subprocess.run(
        ["ruby", "-w", "-I", "lib", "-e", block.code],
        cwd=ruby,
        env=client_environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    expected = [line.partition(" # ")[2] for line in block.code.splitlines() if line.startswith("p ")]
    assert done.stdout.splitlines() == expected
