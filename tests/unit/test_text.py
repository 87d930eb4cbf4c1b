"""Text from outside: nothing in it steers a terminal, and what is too long loses its middle."""

from __future__ import annotations

import pytest

from pyworkers.text import printable, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 語", "plain é 語"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\r\nb\tc\x00", r"a\r\nb\tc\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("\u200b\u2028", r"\u200b\u2028"),
        ("\udce9", r"\xe9"),
        ("\ud800", r"\ud800"),
        ("\x7f", r"\x7f"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_is_no_visible_character_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_of_unicode_is_printable_afterwards() -> None:
    assert all(printable(chr(code)).isprintable() for code in range(0x110000))


def test_a_text_that_is_too_long_keeps_both_ends() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefghij", 4) == "ab[… 6 characters …]ij"
