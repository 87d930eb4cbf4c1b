"""Masking: hides the values of members by their names, as ``[web] mask`` has them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

HIDDEN = "(hidden)"
"""Stands in place of a hidden value."""


def masked(value: Any, names: Collection[str]) -> Any:
    """A copy of a JSON value. The value of each member whose name contains one of ``names`` is hidden.

    Upper and lower case are the same, and ``_`` and ``-`` count as nothing: ``api_key`` hides ``ApiKey2``.
    """
    hidden = [_plain(name) for name in names if name]
    top = [value]
    # Values may be nested too deep for a function that calls itself.
    unread: list[Any] = [top]
    while unread:
        parent = unread.pop()
        for place, child in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            if isinstance(place, str) and any(name in _plain(place) for name in hidden):
                parent[place] = HIDDEN
            elif isinstance(child, dict | list):
                parent[place] = child.copy()
                unread.append(parent[place])
    return top[0]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
