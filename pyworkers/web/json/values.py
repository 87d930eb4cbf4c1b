"""Values: anything that is in Redis, as JSON that every parser accepts.

Pure. No value makes these functions raise.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any

from pyworkers.api.browse.masking import masked, shown_bytes
from pyworkers.text import valid

TOO_DEEP = "(nested too deep)"
# Ruby's parser refuses more than 100 levels.
_DEEPEST = 90
# The members of our objects that hold data of the application.
_OF_JOBS = frozenset({"args", "job", "result"})


def plain(value: Any, mask: Collection[str] = (), depth: int = 0, *, operate: bool = False) -> Any:
    """The value with valid text and finite numbers alone: infinity is a text, an invalid byte is ``\\xff``.

    ``mask``: the members with these names are hidden in the arguments of jobs. ``operate``: the reader may
    act, and sees the bytes of invalid jobs also if nothing can be hidden in them.
    """
    # The exact types of nearly all values: a thousand queues have ten thousand.
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if depth > _DEEPEST and kind is not bytes:
        return TOO_DEEP
    if kind is dict:
        return {
            _text(name): plain(
                masked(item, mask) if name in _OF_JOBS else item, mask, depth + 1, operate=operate
            )
            for name, item in _invalid(value, mask, operate).items()
        }
    if kind is list or kind is tuple:
        return [plain(item, mask, depth + 1, operate=operate) for item in value]
    return plain(_simpler(value), mask, depth, operate=operate)


def _invalid(value: dict[Any, Any], mask: Collection[str], operate: bool) -> dict[Any, Any]:
    """An object; if it is a job that is not valid, with the bytes that may be shown."""
    stored = value.get("raw")
    if "unreadable" not in value or not isinstance(stored, str):
        return value
    return value | {"raw": shown_bytes(stored, mask, operate=operate)}


def _simpler(value: Any) -> Any:
    """A value of another type as one that JSON has."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return list(value)
    return _text(value)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return valid(str(value))
