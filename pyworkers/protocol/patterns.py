"""Patterns: names in which each ``*`` is any text. Pure."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache


def is_like(name: str, pattern: str) -> bool:
    """True if a name is this one, or one in which each ``*`` is any text."""
    return name == pattern or _compiled(pattern).match(name) is not None


# ``fnmatch`` keeps 32,768 patterns, which may be long ones; a search has a few, and a person has some.
@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern.replace("[", "[[]").replace("?", "[?]")))
