"""Thresholds: the numbers above which the dashboard shows a queue, or the whole, as bad. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Self

_FORM = re.compile(r"(?:(\S(?:.*\S)?) +)?(waiting|oldest|failed) *> *([0-9]{1,12})", re.ASCII)
_EXAMPLES = '"waiting > 10000", "failed > 100" or "mail* oldest > 300"'


class Threshold(NamedTuple):
    """One threshold: ``waiting`` jobs, the seconds that the ``oldest`` one waits, or ``failed`` jobs.

    ``match`` is a pattern of names of queues; empty: it is about all queues together.
    """

    match: str
    measure: str
    above: int
    is_set: bool = False
    """True if a person has set it while the dashboard ran; False for one of the configuration."""

    def __str__(self) -> str:
        return f"{self.name} > {self.above}"

    @property
    def name(self) -> str:
        """What it is about: ``mail* oldest`` of ``mail* oldest > 300``."""
        return f"{self.match} {self.measure}".lstrip()

    @classmethod
    def parse(cls, text: object) -> Self:
        """The threshold in a text. Raises ValueError."""
        found = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"must be like {_EXAMPLES}, not {text!r}")
        return cls(found[1] or "", found[2], int(found[3]))

    def is_of(self, queue: str) -> bool:
        """True if it is about a queue."""
        return bool(self.match) and fnmatchcase(queue, self.match)


def check_thresholds(texts: tuple[object, ...]) -> None:
    """Check ``[web] thresholds``. Raises ValueError."""
    for text in texts:
        Threshold.parse(text)


def in_force(declared: Sequence[Threshold], stored: Sequence[Threshold]) -> tuple[Threshold, ...]:
    """The thresholds of the configuration; a ``stored`` one replaces the one with its name."""
    replaced = {one.name for one in stored}
    return (*(one for one in declared if one.name not in replaced), *stored)
