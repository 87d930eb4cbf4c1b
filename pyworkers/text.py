"""Text made safe to show: without characters that control a terminal, and with a limited length.

Pure; used by the logs and the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

_LONGEST_S = 10**15


def printable(text: str) -> str:
    """The text with every invisible character escaped: newlines, changes of direction …"""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def printable_lines(text: str) -> str:
    """The text with every invisible character escaped, but for the newlines."""
    return "\n".join(map(printable, text.split("\n")))


def shorten(text: str, most: int) -> str:
    """Both ends of a text of more than ``most`` characters, and how many are missing between them."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}[… {len(text) - 2 * half} characters …]{text[-half:]}"


def _escape(char: str) -> str:
    # One byte of a name that is not UTF-8.
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:x}"
    escaped = char.encode("unicode_escape", errors="surrogatepass").decode()
    return escaped if escaped != char else repr(char)


def length_of(seconds: float, units: Sequence[tuple[str, int]]) -> list[str]:
    """A length of time without a loss, in parts: ``["25h", "0.5s"]``; the units begin with the largest."""
    rest, parts = Decimal(repr(float(seconds))), []
    # Decimal divides no number of more than 28 digits.
    for unit, size in units if rest < _LONGEST_S else units[-1:]:
        number = rest // size if size > 1 else rest
        if number:
            parts.append(f"{number.normalize():f}{unit}")
        rest -= number * size
    return parts or [f"0{units[-1][0]}"]
