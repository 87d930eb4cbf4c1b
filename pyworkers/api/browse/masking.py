"""Masking: hides the values of some names in arguments and envelopes, at any depth. Pure."""

from __future__ import annotations

from collections.abc import Collection

import simplejson

from pyworkers.http.masking import HIDDEN, masked, unmask

__all__ = ["HIDDEN", "masked", "masked_text", "shown_bytes", "unmask"]


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
