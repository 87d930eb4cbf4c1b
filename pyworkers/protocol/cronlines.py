"""Cron lines: the times of a cron line or of a period, on the clocks of a time zone.

Pure; read by the configuration and by cron entries. croniter computes only wall-clock times, without a time
zone, because it does not follow these rules on the days of a clock change:

- A line that names its hours (no ``*`` in the hour field) fires once for every time that it names. A time
  that the clock skips fires later, by the length of the jump: its instant is computed with the offset before
  the change. A time that the clock shows twice fires at the first of the two instants.
- Any other line fires whenever the clock shows a time that it names: twice in a repeated hour, and not at all
  in a skipped one.
- ``every 30s`` ignores clock changes and time zones: its slots are the multiples of the period since the
  epoch.
"""

from __future__ import annotations

import copy
import math
import re
from bisect import bisect_left
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from croniter import croniter

_DAY_S = 86_400
LONGEST_GRACE_S = 366 * _DAY_S
_HOUR_FIELD = 1
_EVERY = re.compile(r"every\s+([1-9][0-9]{0,8})\s*([smhd])")
_PLAIN = re.compile(r"[0-9*,/\s-]+")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S}
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def check_schedule(schedule: str) -> None:
    """Raise ValueError, with the line and the reason, for a schedule that is invalid or never fires."""
    try:
        if period_s(schedule) is None:
            _check_line(line_of(schedule))
    except ValueError as error:
        raise ValueError(f"{schedule!r} is not a cron line: {error}") from error


def check_grace(grace_s: float) -> None:
    """Raise ValueError, with the number and the limits, for a grace that no entry may have."""
    if not isinstance(grace_s, int | float) or not 0 <= grace_s <= LONGEST_GRACE_S:
        raise ValueError(f"a grace of {grace_s!r} is not from 0 to {LONGEST_GRACE_S} seconds")


def candidates(schedule: str, timezone: str, after: float) -> Iterator[int]:
    """The slots later than ``after``, in order; some may come twice, and a few earlier ones first."""
    period = period_s(schedule)
    if period is not None:
        return count((math.floor(after / period) + 1) * period, period)
    line, zone = line_of(schedule), ZoneInfo(timezone)
    if _names_its_hours(line):
        return _once_for_each_time(line, zone, after)
    return _whenever_shown(line, zone, math.floor(after) + 1)


# Schedules as text


def period_s(schedule: str) -> int | None:
    """The seconds of ``every 30s``, ``5m``, ``2h``, ``1d``; None for any other schedule."""
    words = schedule.strip().lower()
    if not words.startswith("every"):
        return None
    found = _EVERY.fullmatch(words)
    if found is None:
        raise ValueError('"every" is followed by a number from 1 and s, m, h or d, as in "every 30s"')
    return int(found[1]) * _UNITS_S[found[2]]


def line_of(schedule: str) -> str:
    """The cron line of a nickname like ``@daily``; any other schedule unchanged."""
    return _NICKNAMES.get(schedule.strip().lower(), schedule)


@lru_cache(maxsize=256)
def _check_line(line: str) -> None:
    fields = line.lower().split()
    if line.strip().startswith("@"):
        raise ValueError(f"the nicknames are {', '.join(_NICKNAMES)}")
    if len(fields) not in (5, 6):
        raise ValueError(f"it has {len(fields)} fields, not five, or six with the seconds at the end")
    if any(text.startswith("r") for text in fields):
        raise ValueError("a random field would be another one in every process")
    if not _comes_each_year(line) and next(_walls(line, 0.0), None) is None:  # any start will do
        raise ValueError("it names a date that never comes")


def _comes_each_year(line: str) -> bool:
    """True for a line of plain numbers with any day, or in any month; to look for a date takes 0.2 ms.

    A line that names both may name February 30th.
    """
    _, _, days, months, *_ = _parsed(line).expanded
    return _PLAIN.fullmatch(line) is not None and ["*"] in (days, months)


def _names_its_hours(line: str) -> bool:
    hours = _parsed(line).expanded[_HOUR_FIELD]
    # ``*/24`` looks like an interval but names one hour: it must fire even on a day that skips this hour.
    return "*" not in line.split()[_HOUR_FIELD] or (len(hours) == 1 and hours != ["*"])


# Wall-clock times, written as the epoch seconds that they would be in UTC


@lru_cache(maxsize=256)
def _parsed(line: str) -> croniter[float]:
    """The parsed line, cached because parsing takes longer than finding a few slots.

    Callers copy it: its position must not change.
    """
    from croniter import croniter  # here, not on top: the import would add 80 ms to every command

    return croniter(line, start_time=0.0)


def _walls(line: str, after: float) -> Iterator[int]:
    """The wall-clock times of a line later than ``after``. Ends if there is none within 50 years."""
    from croniter import CroniterBadDateError

    times = copy.copy(_parsed(line))
    times.set_current(after)
    while True:
        try:
            wall = times.get_next()
        except CroniterBadDateError:
            return
        yield int(wall)


# From wall-clock times to slots


def _once_for_each_time(line: str, zone: ZoneInfo, after: float) -> Iterator[int]:
    """The instant of each wall-clock time; if it has none or two, by the offset before the change."""
    waiting: list[int] = []
    # The smaller offset: the times of a gap, which is no longer than a day, may have slots after ``after``.
    before = min(_offset(zone, after), _offset(zone, after - _DAY_S))
    for wall in _walls(line, after + before):
        slot = wall - _wall_offset(zone, wall, 0)
        heappush(waiting, slot)
        # The slots of times in a gap are not in order with the slots of times after it. No slot of a time
        # after the gap is earlier than the time in the gap by the offset after the change.
        settled = min(slot, wall - _wall_offset(zone, wall, 1))
        while waiting and waiting[0] <= settled:
            yield heappop(waiting)
    while waiting:
        yield heappop(waiting)


def _whenever_shown(line: str, zone: ZoneInfo, begin: int) -> Iterator[int]:
    """All instants, from ``begin``, at which the clock shows a time of the line."""
    position: int | None = begin
    while position is not None:
        position = yield from _shown_until_change(line, zone, position)


def _shown_until_change(line: str, zone: ZoneInfo, begin: int) -> Generator[int, None, int | None]:
    """Yield instants until the offset changes. Returns the next position, or None at the end.

    Compares offsets that are at most a day apart, so as not to miss a clock change and the change back.
    """
    offset = _offset(zone, begin)
    for wall in _walls(line, begin + offset - 1):
        slot = wall - offset
        horizon = min(slot, begin + _DAY_S)
        if _offset(zone, horizon) != offset:
            return _change(zone, begin, horizon)
        if slot > horizon:
            return slot - _DAY_S
        yield slot
        begin = slot + 1
    return None


def _change(zone: ZoneInfo, before: int, behind: int) -> int:
    """The first second with another offset than ``before``; ``behind`` is later and has another one."""
    old = _offset(zone, before)
    return bisect_left(range(before, behind), True, key=lambda moment: _offset(zone, moment) != old) + before


def _offset(zone: ZoneInfo, moment: float) -> int:
    """Seconds that the clock is ahead of UTC at an instant."""
    return _seconds(datetime.fromtimestamp(moment, zone))


def _wall_offset(zone: ZoneInfo, wall: int, fold: int) -> int:
    """The offset at a wall-clock time. Of a time with two instants, ``fold`` 0 takes the first.

    In a gap, ``fold`` 0 takes the offset before it and 1 the offset after it (PEP 495).
    """
    return _seconds(datetime.fromtimestamp(wall, UTC).replace(tzinfo=zone, fold=fold))


def _seconds(moment: datetime) -> int:
    offset = moment.utcoffset()
    return int(offset.total_seconds()) if offset else 0
