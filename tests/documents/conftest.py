"""A fixture of the tests that read the code as syntax trees."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from contrib.reference import sources
from tests.helpers.processes import close_garbage


@pytest.fixture(scope="module")
def syntax_trees() -> Iterator[None]:
    """Leave them, and what griffe keeps, out of each later collection of garbage: it would take a second."""
    yield
    sources.trees.cache_clear()
    close_garbage()
    gc.freeze()
