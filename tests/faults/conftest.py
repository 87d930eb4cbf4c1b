"""Fixtures of the fault suite: a fleet on the session's Redis, and other Redis servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fleet import Fleet
from tests.helpers.redises import OwnRedis


@pytest.fixture
def fleet(tmp_path: Path, one_redis_url: str, namespace: str) -> Iterator[Fleet]:
    """Servers on the Redis that all tests share."""
    with Fleet(tmp_path, one_redis_url, namespace) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path, one_binary: str) -> Iterator[OwnRedis]:
    """A Redis that the scenario may kill; it runs."""
    with OwnRedis(one_binary, tmp_path / "redis") as server:
        yield server.start()
