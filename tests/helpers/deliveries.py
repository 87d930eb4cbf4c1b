"""Jobs as the master has them. Used by the tests alone, in the process of the test."""

from __future__ import annotations

import itertools

from pyworkers.server.pool.delivery import Delivery

_NUMBERS = itertools.count(1)


def delivery(raw: bytes, queue: str = "q") -> Delivery:
    """A job that was fetched."""
    return Delivery(next(_NUMBERS), queue, raw)
