"""Masking: hides the values of some names in arguments and envelopes, at any depth. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import simplejson

HIDDEN = "(hidden)"


def masked(value: Any, names: Collection[str]) -> Any:
    """A copy of a JSON value. The value of each member whose name contains one of ``names`` is hidden.

    Upper and lower case are the same: ``token`` hides ``ApiToken``.
    """
    hidden = [name.casefold() for name in names if name]
    top = [value]
    # Values may be nested too deep for a function that calls itself.
    unread: list[Any] = [top]
    while unread:
        parent = unread.pop()
        for place, child in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            if isinstance(place, str) and any(name in place.casefold() for name in hidden):
                parent[place] = HIDDEN
            elif isinstance(child, dict | list):
                parent[place] = child.copy()
                unread.append(parent[place])
    return top[0]


def masked_text(text: str, names: Collection[str]) -> str | None:
    """A JSON text, as ``masked``; None for any other text, in which nothing can be found to hide."""
    try:
        return simplejson.dumps(masked(simplejson.loads(text), names), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None


def shown_bytes(text: str, names: Collection[str], *, operate: bool) -> str:
    """The stored bytes of an invalid job as text. Those that cannot be masked are for ``operate`` alone."""
    if not any(names):
        return text
    found = masked_text(text, names)
    return (text if operate else HIDDEN) if found is None else found
