"""Names in addresses."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.web.names import decode, encode

SAFE = re.compile(r"[A-Za-z0-9_.~-]*")


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("mail", "mail"),
        ("a/b", "a~2Fb"),
        ("..", "~2E~2E"),
        ("é\n", "~C3~A9~0A"),
        ("\udcff", "~FF"),
        ("~", "~7E"),
    ],
)
def test_a_name_as_a_segment(name: str, segment: str) -> None:
    assert encode(name) == segment
    assert decode(segment) == name


@given(st.text(st.characters(), max_size=20))
def test_any_text_comes_back(name: str) -> None:
    segment = encode(name)
    assert SAFE.fullmatch(segment)
    assert segment not in (".", "..")
    # Bytes that are UTF-8 together come back as the character, which is the same key.
    assert decode(segment).encode(errors="surrogatepass") == name.encode(errors="surrogatepass") or (
        decode(segment).encode(errors="surrogateescape") == name.encode(errors="surrogateescape")
    )


@given(st.binary(max_size=20))
def test_any_bytes_come_back(name: bytes) -> None:
    assert decode(encode(name.decode(errors="surrogateescape"))).encode(errors="surrogateescape") == name
