"""Fixtures of the tests of whole servers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.helpers.server_process import Serve, serving


@pytest.fixture
def serve(tmp_path: Path, one_redis_url: str, namespace: str) -> Serve:
    """``serving`` in the folder of this test, on one Redis, under the prefix of this test."""
    return functools.partial(serving, tmp_path, one_redis_url, namespace)


@pytest.fixture
def serve_either(tmp_path: Path, redis_url: str, namespace: str) -> Serve:
    """As ``serve``, on the Redis that the name of the test decides."""
    return functools.partial(serving, tmp_path, redis_url, namespace)
