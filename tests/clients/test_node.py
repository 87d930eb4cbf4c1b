"""The client for Node: its own tests, the check of its types, and the programs of its documents."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.blocks import Block, blocks
from tests.helpers.support import PATIENCE_S


def test_its_tests_pass(node: Path, client_environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["npm", "test", "--silent"],
        cwd=node,
        env=client_environment,
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_types_are_those_of_its_code(node: Path) -> None:
    """And a typed call refuses arguments of other types: test/types.ts."""
    done = subprocess.run(["npm", "run", "--silent", "types"], cwd=node, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", blocks("js"), ids=str)
def test_a_program_of_the_documents_runs(
    block: Block, node: Path, client_environment: Mapping[str, str]
) -> None:
    """Those of docs/clients.md; a comment is what a line prints."""
    code = block.code
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", code],
        cwd=node,
        env=client_environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    expected = [line.partition("); // ")[2] for line in code.splitlines() if line.startswith("console.log")]
    assert done.stdout.splitlines() == expected
