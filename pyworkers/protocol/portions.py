"""Portions: long lists in parts, each of which is one command.

Pure; used by all that sends many items to Redis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def portions(items: Iterable[Any], size: int) -> Iterable[list[Any]]:
    """The items in lists of ``size``; never more than one list in memory."""
    portion: list[Any] = []
    for item in items:
        portion.append(item)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion
