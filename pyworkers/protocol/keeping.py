"""Keeping: the option ``keep``: of how many finished jobs something is kept, and for how long.

Pure; read by the configuration and by the declarations of jobs, without the effects that it leads to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

MOST = 1_000_000
LONGEST_S = 366 * 86_400
RULE = f"[number of jobs, seconds], from 1 to {MOST:,} jobs and {LONGEST_S:,} s"


class Keep(NamedTuple):
    """What is kept of the jobs that end: about the last ``most``, none older than ``ttl_s`` seconds."""

    name: str
    """The list that has them: ``server``, ``queue/QUEUE`` or ``class/CLASS``."""
    most: int
    ttl_s: int
    with_args: bool = True
    """False: their arguments are left out."""


def check_keep(value: Any) -> tuple[int, int] | None:
    """The two numbers of the option ``keep``; None for an empty list. Raises ValueError, with the rule."""
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) not in (0, 2):
        raise ValueError(f"keep must be {RULE}, not {value!r}")
    if not value:
        return None
    # A variable of the environment has texts.
    numbers = [int(one) if isinstance(one, str) and one.isdecimal() else one for one in value]
    most, ttl_s = numbers
    valid = all(isinstance(one, int) and not isinstance(one, bool) for one in numbers)
    if not (valid and 1 <= most <= MOST and 1 <= ttl_s <= LONGEST_S):
        raise ValueError(f"keep must be {RULE}, not {value!r}")
    return most, ttl_s
