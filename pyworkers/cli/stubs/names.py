"""Names and texts in a file of another language: each identifier once, of letters and digits. Pure."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable


class FreeNames:
    """The names that are taken in one place of a file: in a module, in a type, in the arguments of a job."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def new(self, wanted: str) -> str:
        """This name, or the first one with a number that is free."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}{number}", number + 1
        self._taken.add(name)
        return name


def words(name: str) -> list[str]:
    """``send`` and ``mail`` of ``send_mail``: what may be in an identifier of each language."""
    return "".join(one if is_plain(one) else " " for one in name).split()


def is_plain(character: str) -> bool:
    """True for a letter or a decimal digit of any script."""
    kind = unicodedata.category(character)
    return kind[0] == "L" or kind == "Nd"


def pascal(parts: Iterable[str]) -> str:
    """``SendMail`` of ``send`` and ``mail``; it begins with an upper-case letter."""
    found = "".join(part[:1].upper() + part[1:] for part in parts)
    return found if found and unicodedata.category(found[0]) == "Lu" else f"Job{found}"


def comment(text: str) -> str:
    """A text as one line of a comment."""
    return " ".join("".join(" " if unicodedata.category(one)[0] == "C" else one for one in text).split())


def quoted(text: str) -> str:
    """A text in quotes, as JSON, Go, TypeScript and, but for ``#``, Ruby read it."""
    return re.sub(
        "[\u007f-\u009f\u2028\u2029\ufeff]",
        lambda found: f"\\u{ord(found[0]):04x}",
        json.dumps(text, ensure_ascii=False),
    )
