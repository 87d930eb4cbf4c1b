"""Names in addresses: any text as one segment of a path, and back; and numbers in addresses and forms.

Pure. Percent-encoding would not do: servers and proxies decode ``%2F`` before they route, and replace bytes
that are not UTF-8.
"""

from __future__ import annotations

import hashlib
import re

_OTHERS = re.compile(r"[^A-Za-z0-9_.-]")
_ENCODED = re.compile(r"~u([0-9a-fA-F]{4})|((?:~[0-9a-fA-F]{2})+)")
MOST_CHARACTERS = 2000
"""The length of a segment up to which every browser and proxy passes it on."""


def encode(name: str) -> str:
    """A name as one segment: characters other than ``A-Z a-z 0-9 _ - .`` are ``~`` and two digits per byte.

    Bytes that are not UTF-8, decoded with ``surrogateescape``, are kept; other surrogates are ``~uD800``.
    """
    text = _OTHERS.sub(lambda found: _character(found[0]), name)
    # Browsers resolve these two.
    return text.replace(".", "~2E") if text in (".", "..") else text


def part(name: str) -> str:
    """The name of a thing in the live parts of a page; of one too long for an address, a digest."""
    encoded = encode(name)
    if len(encoded) <= MOST_CHARACTERS:
        return encoded
    return hashlib.sha256(encoded.encode()).hexdigest()


def decode(segment: str) -> str:
    """The name in a segment; other characters stand for themselves."""
    return _ENCODED.sub(_decoded, segment)


def number_in(text: str, digits: int) -> int | None:
    """The number in a text of at most this many digits; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None


def is_key(name: str) -> bool:
    """True for a name that a key can have: not empty, and without surrogates that stand for no byte."""
    try:
        return bool(name.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        return False


def _character(char: str) -> str:
    try:
        return "".join(f"~{byte:02X}" for byte in char.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        return f"~u{ord(char):04X}"


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return chr(int(found[1], 16))
    return bytes.fromhex(found[2].replace("~", "")).decode(errors="surrogateescape")
