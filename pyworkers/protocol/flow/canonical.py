"""Canonical: the one text of a JSON value, for keys that programs in several languages compute alike.

Pure. RFC 8785: no blanks, the members of an object by the UTF-16 code units of their names, only the escapes
that JSON demands, and doubles in ECMAScript's shortest form. With one addition: a number that is written
without point and exponent is an integer, and has its digits.
"""

from __future__ import annotations

import math
from json.encoder import encode_basestring
from typing import Any

_WORDS = {None: "null", True: "true", False: "false"}
# Up to this number of digits before the point, and zeros after it, ECMAScript writes no exponent.
_MOST_DIGITS, _MOST_ZEROS = 21, 6


def canonical(value: Any) -> bytes:
    """The canonical text in UTF-8.

    Raises ValueError for NaN, infinity, a lone surrogate and an integer of more than 4,300 digits, and
    TypeError for a type that JSON lacks.
    """
    return _text(value).encode()


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return _double(value)
    # Without map and comprehensions, whose calls double the depth of the stack: 500 levels would be too many.
    texts: list[str] = []
    if isinstance(value, list | tuple):
        for item in value:
            texts.append(_text(item))
        return f"[{','.join(texts)}]"
    if isinstance(value, dict):
        for name in sorted(value, key=_units):
            texts.append(f"{encode_basestring(name)}:{_text(value[name])}")
        return f"{{{','.join(texts)}}}"
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def _units(name: object) -> bytes:
    """What the name of a member is sorted by."""
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} of a member is not a text")
    return name.encode("utf-16-be", "surrogatepass")


def _double(value: float) -> str:
    """ECMAScript's Number::toString; Python's shortest digits are the same."""
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is not a JSON number")
    if value == 0:
        return "0"
    mantissa, _, exponent = float.__repr__(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The place of the point, counted from the first digit.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    return ("-" if value < 0 else "") + _placed(digits.rstrip("0"), point)


def _placed(digits: str, point: int) -> str:
    """Digits with the point at its place, or with an exponent."""
    if len(digits) <= point <= _MOST_DIGITS:
        return digits.ljust(point, "0")
    if 0 < point <= _MOST_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_MOST_ZEROS < point <= 0:
        return f"0.{'0' * -point}{digits}"
    mantissa = digits[0] + (f".{digits[1:]}" if digits[1:] else "")
    return f"{mantissa}e{point - 1:+d}"
