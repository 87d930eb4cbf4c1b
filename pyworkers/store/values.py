"""Values: reads fields that any program may have written: of another type, undecodable, or missing.

Used by the readers of ``store`` and ``api``; no function raises.
"""

from __future__ import annotations

from typing import Any, TypeVar

import simplejson

from pyworkers.store.calls import decoded

J = TypeVar("J", dict[str, Any], list[Any], str)


def names_of(value: object) -> list[str]:
    """The strings of a list, without those that UTF-8 cannot encode: no key can have their name."""
    names = value if isinstance(value, list) else []
    return [name for name in names if encodable(name)]


def encodable(name: object) -> bool:
    """True for a text that UTF-8 can encode, and that is not empty."""
    try:
        return isinstance(name, str) and bool(name.encode())
    except UnicodeEncodeError:
        return False


def decoded_json(stored: bytes | None, kind: type[J]) -> J | None:
    """The JSON value, if it is of this type; None for all other bytes."""
    try:
        value = simplejson.loads(stored) if stored else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def names_in(stored: bytes | None) -> list[str]:
    """As ``names_of``, of a list that is stored as JSON; none for other bytes."""
    return names_of(decoded_json(stored, list))


def as_count(stored: bytes | None) -> int:
    """The number in a counter; 0 for other bytes. Redis counts up to 19 digits."""
    return int(stored) if stored and stored.isdigit() and len(stored) < 20 else 0


def as_int(value: object) -> int:
    """The number, without its fraction; 0 for any other value."""
    try:
        return int(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0


def as_str(value: object) -> str:
    """The text; empty for None, and Python's text for a value of another type."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def as_text(stored: bytes | None) -> str:
    """The text, of which ``command`` makes the same bytes; empty for None."""
    return "" if stored is None else decoded(stored)
