"""Text made safe to show: without characters that control a terminal, and with a limited length.

Pure; used by the logs, the commands and the pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

_LONGEST_S = 10**15
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNITS_S = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
TIME_UNITS_S = (("d", 86_400, 2 * 86_400), ("h", 3600, 3600), ("min", 60, 60), ("s", 1, 1))
"""The units of times for people: name, seconds, shortest time in it ("36 h ago" says more than "1 d ago")."""


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


def valid(text: str) -> str:
    """A text as UTF-8 can encode it: a byte that is not UTF-8 as ``\\xff``, half of a pair as ``\\ud800``."""
    return text if text.isascii() else _SURROGATE.sub(lambda found: escaped(found[0]), text)


def _escape(char: str) -> str:
    # One byte of a name that is not UTF-8.
    if "\udc80" <= char <= "\udcff":
        return f"\\x{ord(char) - 0xDC00:x}"
    escaped = char.encode("unicode_escape", errors="surrogatepass").decode()
    return escaped if escaped != char else repr(char)


def escaped(char: str) -> str:
    """A character as ``\\u001b``; a byte that is not UTF-8 as ``\\xff``."""
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 job``, ``2,000 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


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


def is_unicode(text: str) -> bool:
    """False for a lone surrogate, which cannot be sent."""
    return _SURROGATE.search(text) is None


def duration(seconds: float) -> str:
    """A time span for people: 850ms, 12s, 3m20s, 5h7m, 12d3h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    whole = int(seconds)
    for unit, smaller, size, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"


def exact_duration(seconds: float) -> str:
    """A time span without a loss: ``1d1h0.5s``, as an option takes it; below a second in whole ms."""
    if seconds < 1 and seconds * 1000 % 1 == 0:
        return duration(seconds)
    return "".join(length_of(seconds, _UNITS_S))
