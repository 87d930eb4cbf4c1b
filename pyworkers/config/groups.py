"""Groups: the rules for their names, their queues and their modes, and the part that a command line selects.

Pure; used by the application, the configuration, the command line and the master.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import overload

from pyworkers.protocol.keys import QUEUE_NAME_RULE, check_queue_name

MODES = ("process", "async", "thread")
"""What a worker process holds: one job, or several on an event loop or on threads."""

Queues = tuple[str, ...] | Mapping[str, int]
"""Queues in strict order, or the weight of each."""

AUTO = "auto"
"""The number of worker processes follows the jobs."""
_SPAN = re.compile(r"(\d{1,6})-(\d{1,6})")
_HEAVIEST = 1_000_000
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of jobs that run at a time and of worker processes, and the mode; None: not given."""

    concurrency: int | None = None
    processes: int | str | None = None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Only:
    """The queues and the groups that a server serves, by its command line; empty: all.

    ``queues`` holds the concurrency, or None; ``groups`` the queues and the concurrency by the name of the
    group.
    """

    queues: Mapping[str, int | None] = field(default_factory=dict)
    groups: Mapping[str, tuple[Queues, int | None]] = field(default_factory=dict)


def span(processes: int | str | None) -> tuple[int | None, int | None]:
    """The least and the largest number of worker processes: ``"auto"`` is from 0 on, ``"1-4"`` a range.

    The least is None for a number that does not follow the jobs, and the largest if none is given. Raises
    ValueError.
    """
    if not isinstance(processes, str):
        return None, processes
    if processes == AUTO:
        return 0, None
    found = _SPAN.fullmatch(processes)
    if found is None or not 0 < int(found[2]) >= int(found[1]):
        raise ValueError(f"must be a number from 1, {AUTO!r} or a range as '1-4', not {processes!r}")
    return int(found[1]), int(found[2])


def check_processes(processes: int | str) -> None:
    """Raise ValueError for processes that are neither a number from 1 nor a range."""
    _, most = span(processes)
    if most is not None and most < 1:
        raise ValueError(f"must be at least 1, not {most}")


@overload
def largest(numbers: Iterable[int | None]) -> int | None: ...
@overload
def largest(numbers: Iterable[int | str | None]) -> int | str | None: ...
def largest(numbers: Iterable[int | str | None]) -> int | str | None:
    """The largest of these numbers; a range is larger than each of them."""
    return max((one for one in numbers if one), key=_order, default=None)


def _order(number: int | str) -> tuple[int, int, int]:
    if isinstance(number, int):
        return 0, number, 0
    least, most = span(number)
    return 1, most or _HEAVIEST, least or 0


def check_group_name(name: object) -> None:
    """Raise ValueError, with the rule, for a name that cannot be a group: the rule for queues applies."""
    try:
        check_queue_name(name)
    except ValueError as error:
        raise ValueError(f"{name!r} cannot name a group: {QUEUE_NAME_RULE}") from error


def check_queues(queues: Queues) -> None:
    """Raise ValueError, with the rule, for queues that cannot form a group."""
    if not queues:
        raise ValueError("a group has at least one queue")
    for name in queues:
        check_queue_name(name)
    if isinstance(queues, Mapping):
        for name, weight in queues.items():
            if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= _HEAVIEST:
                raise _bad_weight(name, repr(weight))
    elif twice := [name for place, name in enumerate(queues) if name in queues[:place]]:
        raise ValueError(f"{twice[0]} is named twice: for weights, give each queue its number")


def parse_queues(text: str) -> Queues:
    """``critical,default`` in this order, or by weight: ``critical:5,default:2``. Raises ValueError.

    As in Sidekiq, a queue without a number has the weight 1 if another queue has one.
    """
    names: list[str] = []
    weights: list[str] = []
    for part in text.split(","):
        name, colon, weight = part.rpartition(":")
        weighted = bool(colon) and _NUMBER.fullmatch(weight) is not None
        if weighted and not weight.isdecimal():
            raise _bad_weight(name, weight)
        names.append(name if weighted else part)
        weights.append(weight if weighted else "")
    # Before a dict drops the second weight of a queue.
    check_queues(tuple(names))
    if not any(weights):
        return tuple(names)
    queues = {name: int(weight or 1) for name, weight in zip(names, weights, strict=True)}
    check_queues(queues)
    return queues


def _bad_weight(name: str, weight: str) -> ValueError:
    return ValueError(f"the weight of {name} must be an integer from 1 to {_HEAVIEST:,}, not {weight}")


def spell_queues(queues: Queues) -> str:
    """The queues as a command line writes them, to be shown."""
    if isinstance(queues, Mapping):
        return ",".join(f"{name}:{weight}" for name, weight in queues.items())
    return ",".join(queues)
