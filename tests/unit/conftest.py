"""Fixtures of the tests without a server."""

from __future__ import annotations

import pytest


@pytest.fixture
def no_redis_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable that says which Redis to use."""
    for name in ("PYWORKERS_CONFIG", "PYWORKERS_REDIS__URL", "PYWORKERS_REDIS__NAMESPACE", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
