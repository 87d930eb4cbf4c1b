"""The warm-up: it makes CPython specialize what workers run through, and leaves no other trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from pyworkers.failpoints import VARIABLE
from pyworkers.worker.warmup import warm_up
from tests.helpers.processes import leaving_no_descriptor

ROOT = Path(__file__).parents[2]

COUNT_SPECIALIZED = """
import dis
from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.protocol.message import Message
from pyworkers.worker.chains import Chains, ProcessParts
from pyworkers.worker.connection import Connection
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.warmup import warm_up

def specialized(function):
    return sum(op.opname not in dis.opmap for op in dis.get_instructions(function, adaptive=True))

start = (Connection.__init__, ProcessParts.chains, Chains.build)
way = (*start, JobSocket.receive, Message.parse, SerialRunner.run)
# Not none before: the compiler of Python 3.12 joins some instructions.
before = list(map(specialized, way))
warm_up("info")
after = list(map(specialized, way))
assert all(more > less for more, less in zip(after, before)), (before, after)
"""


def test_what_a_worker_runs_through_is_specialized() -> None:
    # Without the environment: nothing is specialized while coverage traces it.
    subprocess.run([sys.executable, "-c", COUNT_SPECIALIZED], cwd=ROOT, env={}, check=True, timeout=60)


def test_no_failpoint_is_passed() -> None:
    points = ",".join(f"{point}=kill" for point in ("before_claim", "job_start", "mid_frame"))
    command = [sys.executable, "-c", "from pyworkers.worker.warmup import warm_up; warm_up('info')"]
    subprocess.run(command, cwd=ROOT, env={VARIABLE: points}, check=True, timeout=60)


def test_no_descriptor_is_left() -> None:
    warm_up("warning")
    with leaving_no_descriptor():
        warm_up("warning")


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_nothing_is_logged_and_logging_is_as_if_it_had_never_been(
    level: str, capfd: pytest.CaptureFixture[str]
) -> None:
    warm_up(level)
    assert capfd.readouterr() == ("", "")
    assert not structlog.is_configured()
