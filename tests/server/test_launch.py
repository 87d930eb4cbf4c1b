"""Fork servers that are started where little is as usual."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyworkers.ipc.control import Load, Loaded, LoadFailed
from pyworkers.server.generations.launch import ChildProcess, Executed, Launch, Launched
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.generations.spawner import Spawner
from pyworkers.version import __version__
from tests.helpers.launching import launched_anew
from tests.helpers.processes import leaving_no_descriptor
from tests.helpers.support import PATIENCE_S


@pytest.fixture
def a_thousand_descriptors() -> Iterator[None]:
    """So that the next ones have numbers that ``select`` cannot watch."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 1200:
        pytest.skip("a process may open fewer than 1,200 files")
    with ExitStack() as held:
        for _ in range(1100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


def refuse(channel: int, lifeline: int, env: Mapping[str, str]) -> ChildProcess:
    raise OSError("no process")


def end_at_once(channel: int, lifeline: int, env: Mapping[str, str]) -> ChildProcess:
    process = Executed(["true"])
    process.wait()
    return process


@pytest.mark.parametrize("launch", [refuse, end_at_once])
def test_a_fork_server_that_cannot_be_launched_leaves_no_descriptor(launch: Launch) -> None:
    with leaving_no_descriptor(), pytest.raises(OSError, match=r"no process|Broken pipe"):
        Launched(Load("tasks:worker"), os.environ, launch)


async def test_a_fork_server_of_another_version_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade of the package and a HUP: the old code continues."""
    monkeypatch.setattr("pyworkers.server.generations.launch.__version__", "0.0.1")
    launched = launched_anew(Load("tasks:worker", [str(tmp_path)]))
    spawner = Spawner(launched, Reaper(), lambda _: None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            refusal = await spawner.loaded()
        assert isinstance(refusal, LoadFailed)
        assert refusal.message.startswith(f"pyworkers {__version__} is installed, but this server is 0.0.1:")
    finally:
        spawner.close()
        spawner.kill()
        spawner.process.wait()


async def test_a_master_of_hundreds_of_workers_can_start_a_fork_server(
    a_thousand_descriptors: None, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text("from pyworkers import Worker\nworker = Worker()\n")

    launched = launched_anew(Load("tasks:worker", [str(tmp_path)]))
    spawner = Spawner(launched, Reaper(), lambda _: None)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert isinstance(await spawner.loaded(), Loaded)
    finally:
        spawner.close()
        spawner.kill()
        spawner.process.wait()
