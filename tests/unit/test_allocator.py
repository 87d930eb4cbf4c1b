"""The allocator: a process that has had a large job does not ask the kernel for the same memory again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

COUNT_FAULTS = """
import resource, sys
from pyworkers.ipc.allocator import keep_memory_of

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        job = b"x" * 1_000_000
        text = job.decode()
        copy = text + "y"
        del job, text, copy
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_memory_of(b"x" * int(sys.argv[1]))
faults()
print(faults())
"""


def faults_after_a_job_of(size: int) -> int:
    """The page faults of 20 jobs, each of which needs at least 700 pages."""
    command = [sys.executable, "-c", COUNT_FAULTS, str(size)]
    return int(subprocess.run(command, cwd=ROOT, check=True, timeout=60, capture_output=True).stdout)


def test_memory_is_kept_after_a_large_job() -> None:
    assert faults_after_a_job_of(1_000_000) < 1_000


def test_a_small_job_changes_nothing() -> None:
    assert faults_after_a_job_of(1_000) > 5_000
