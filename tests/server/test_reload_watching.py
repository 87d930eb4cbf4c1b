"""The watch of ``--reload`` under a system that refuses it: the server goes on, and says so once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pyworkers.server.generations import watching

watchfiles = pytest.importorskip("watchfiles")


@pytest.mark.parametrize(
    "error",
    [OSError(28, "OS file watch limit reached."), RuntimeError("Error creating recommended watcher: 24")],
    ids=["watches", "instances"],
)
async def test_folders_that_cannot_be_watched_are_watched_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries = 0

    async def awatch(*_folders: Path, **_options: Any) -> AsyncIterator[set[tuple[int, str]]]:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise error
        yield {(1, "tasks.py")}

    monkeypatch.setattr(watchfiles, "awatch", awatch)
    monkeypatch.setattr(watching, "_RETRY_S", 0)
    loaded: list[int] = []
    with capture_logs() as events:
        await asyncio.wait_for(watching.watch([tmp_path], lambda: loaded.append(tries)), 10)
    assert loaded == [4]
    [event] = [event for event in events if event["event"] == "reload.unwatched"]
    assert event["error"] == str(error) and "max_user_watches" in event["hint"]
