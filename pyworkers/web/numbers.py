"""Numbers: the digits in addresses, forms and files; no other text is a number. Pure."""

from __future__ import annotations


def number_in(text: str, digits: int) -> int | None:
    """The number in a text of at most so many digits; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None
