"""Masking: hides the values of members by their names, as ``[web] mask`` has them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

HIDDEN = "(hidden)"
"""Replaces a hidden value."""


def masked(value: Any, names: Collection[str]) -> Any:
    """A copy of a JSON value. The value of each member whose name contains one of ``names`` is hidden.

    Upper and lower case are the same, and ``_`` and ``-`` count as nothing: ``api_key`` hides ``ApiKey2``.
    """
    hides = _hiding(names)
    top = [value]
    # Values may be nested too deep for a function that calls itself.
    unread: list[Any] = [top]
    while unread:
        parent = unread.pop()
        for place, child in list(parent.items() if isinstance(parent, dict) else enumerate(parent)):
            if hides(place):
                parent[place] = HIDDEN
            elif isinstance(child, dict | list):
                parent[place] = child.copy()
                unread.append(parent[place])
    return top[0]


def unmask(changed: Any, stored: Any, names: Collection[str]) -> None:
    """Put the hidden values of ``stored`` back into ``changed``, where each is still in its place.

    In a list with more or fewer values than before, no place is known: a value could reach another object.
    """
    hides = _hiding(names)
    pairs = [(changed, stored)]
    while pairs:
        new, old = pairs.pop()
        if isinstance(new, dict) and isinstance(old, dict):
            places: Collection[Any] = new.keys() & old.keys()
        elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
            places = range(len(new))
        else:
            continue
        for place in places:
            if not hides(place):
                pairs.append((new[place], old[place]))
            elif new[place] == HIDDEN:
                new[place] = old[place]


def _hiding(names: Collection[str]) -> Callable[[Any], bool]:
    """Whether the value at a place is hidden: the name of a member, or a number in a list."""
    hidden = [_plain(name) for name in names if name]
    return lambda place: isinstance(place, str) and any(name in _plain(place) for name in hidden)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")
