"""Fixtures of the tests without a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyworkers.testing import Fake, fake


@pytest.fixture
def no_redis_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that says which Redis to use."""
    for name in ("PYWORKERS_CONFIG", "PYWORKERS_REDIS__URL", "PYWORKERS_REDIS__NAMESPACE", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def queue() -> Iterator[Fake]:
    """What the test enqueues."""
    with fake() as queue:
        yield queue
