"""The soak as a scenario: half a minute, with a seed that the output names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers.support import ROOT


@pytest.mark.fault("M1", "M2", "R2", "R3", "R4", "R7", "W2")
@pytest.mark.lengthy
@pytest.mark.timeout(240)
def test_a_random_schedule_of_faults_loses_nothing() -> None:
    command = [sys.executable, "-m", "tests.faults.soak", "--seconds", "30"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    print(found.stdout)
