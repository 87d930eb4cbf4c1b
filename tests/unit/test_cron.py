"""Cron entries: lines, the days on which clocks change, misfires, and the envelope."""

from __future__ import annotations

import math
import subprocess
import sys
import time
import zoneinfo
from bisect import bisect_left
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from typing import NamedTuple

import pytest

from pyworkers.protocol import envelope
from pyworkers.protocol.cron import (
    MOST_MISSED,
    CronEntry,
    check,
    due,
    job_of,
    next_slot,
    slots,
)
from pyworkers.protocol.cronlines import LONGEST_GRACE_S, check_schedule

NOON = 1_793_534_400  # Sunday 2026-11-01 12:00 UTC
HOUR, DAY = 3600, 86_400
YEAR = 2027
NEW_YORK, PARIS, LORD_HOWE, SYDNEY = (
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "Australia/Sydney",
)


def entry(schedule: str = "*/5 * * * *", timezone: str = "UTC", **fields: object) -> CronEntry:
    values = {"name": "sweep", "queue": "mail", "job_class": "Sweep", **fields}
    return CronEntry(schedule=schedule, timezone=timezone, **values)  # type: ignore[arg-type]


def midnight(day: date, zone: str) -> float:
    """The first instant of a local day."""
    return datetime(day.year, day.month, day.day, tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


def of_day(line: str, zone: str, day: str) -> list[str]:
    """The slots of a local day, each as ``01:30-0400``."""
    start = date.fromisoformat(day)
    begin, end = midnight(start, zone), midnight(start + timedelta(days=1), zone)
    found = slots(entry(line, zone), begin - 1, end - 1)
    return [datetime.fromtimestamp(slot, zoneinfo.ZoneInfo(zone)).strftime("%H:%M%z") for slot in found]


def hourly(first: int, last: int, offset: str, step: int = 1) -> list[str]:
    return [f"{hour:02}:00{offset}" for hour in range(first, last, step)]


# Schedules


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("*/5 * * * *", [NOON + 300, NOON + 600]),
        ("0 * * * *", [NOON + HOUR, NOON + 2 * HOUR]),
        ("30 4 * * *", [NOON + 16 * HOUR + 1800, NOON + 40 * HOUR + 1800]),
        ("* * * * * */20", [NOON + 20, NOON + 40]),
        ("0 13 * * * 7", [NOON + HOUR + 7, NOON + 25 * HOUR + 7]),
        ("@hourly", [NOON + HOUR, NOON + 2 * HOUR]),
        ("@daily", [NOON + 12 * HOUR, NOON + 36 * HOUR]),
        ("@midnight", [NOON + 12 * HOUR, NOON + 36 * HOUR]),
        (" @Daily ", [NOON + 12 * HOUR, NOON + 36 * HOUR]),
        ("@weekly", [NOON + 6 * DAY + 12 * HOUR, NOON + 13 * DAY + 12 * HOUR]),
        ("@monthly", [NOON + 29 * DAY + 12 * HOUR, NOON + 60 * DAY + 12 * HOUR]),
        ("@yearly", [NOON + 60 * DAY + 12 * HOUR, NOON + 425 * DAY + 12 * HOUR]),
        ("@annually", [NOON + 60 * DAY + 12 * HOUR, NOON + 425 * DAY + 12 * HOUR]),
        ("0 12 * * mon-fri", [NOON + DAY, NOON + 2 * DAY]),
        ("0 0 29 2 *", [1_835_395_200, 1_961_625_600]),
        ("every 30s", [NOON + 30, NOON + 60]),
        ("every 7s", [NOON + 7, NOON + 14]),
        ("Every 5 M", [NOON + 300, NOON + 600]),
        ("every 2h", [NOON + 2 * HOUR, NOON + 4 * HOUR]),
        ("every 1d", [NOON + 12 * HOUR, NOON + 36 * HOUR]),
    ],
)
def test_a_schedule_has_these_slots_after_noon(schedule: str, expected: list[int]) -> None:
    check(entry(schedule))
    assert list(islice(slots(entry(schedule), NOON, math.inf), 2)) == expected
    assert next_slot(entry(schedule), NOON) == expected[0]


@pytest.mark.parametrize("schedule", ["*/5 * * * *", "0,5,10,15 12 * * *", "every 5m", "* * * * * */10"])
@pytest.mark.parametrize("zone", ["UTC", PARIS])
def test_slots_are_later_than_after_and_no_later_than_until(schedule: str, zone: str) -> None:
    begin = NOON - 3600 * (zone == PARIS)
    all_of_them = list(slots(entry(schedule, zone), begin - 1, begin + 900))
    assert all_of_them[0] == begin
    assert all_of_them[-1] == begin + 900
    assert list(slots(entry(schedule, zone), begin, begin + 900)) == all_of_them[1:]
    assert list(slots(entry(schedule, zone), begin - 0.5, begin + 899.5)) == all_of_them[:-1]
    assert list(slots(entry(schedule, zone), begin, begin)) == []


def test_a_period_does_not_drift() -> None:
    # 7 s do not divide the minute; what counts is the epoch, not when we look.
    assert all(slot % 7 == 0 for slot in slots(entry("every 7s"), NOON, NOON + 1000))
    assert next_slot(entry("every 7s"), NOON + 5.9) == NOON + 7


@pytest.mark.parametrize(
    "line",
    ["0 0 31 * *", "0 0 31 1-12 *", "59 23 * 2 *", "0 0 1-31 2 7", "*/59 */23 */31 * 0", "1-2,5 3/4 30 * 1"],
)
def test_a_line_that_is_accepted_without_a_look_comes_within_a_year(line: str) -> None:
    check_schedule(line)
    assert next_slot(entry(line), NOON) < NOON + 366 * 86_400


def test_a_date_that_comes_every_four_years_is_found_at_once() -> None:
    assert next_slot(entry("0 */6 29 2 *", NEW_YORK), NOON) == 1_835_413_200  # 2028-02-29 00:00 EST


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("60 * * * *", "out of range"),
        ("* * * *", "it has 4 fields, not five, or six with the seconds at the end"),
        ("* * * * * * 2030", "it has 7 fields"),
        ("", "it has 0 fields"),
        ("0 0 30 2 *", "it names a date that never comes"),
        ("@reboot", "the nicknames are @hourly, @daily"),
        ("0 0 * * fry", "is not acceptable"),
        ("R * * * *", "a random field would be another one in every process"),
        ("0 r(1-5) * * *", "a random field"),
        ("H * * * *", "hash_id"),
        ("every 0s", '"every" is followed by a number'),
        ("every 30", '"every" is followed by a number'),
        ("every 1.5h", '"every" is followed by a number'),
        ("every", '"every" is followed by a number'),
        ("every ٣s", '"every" is followed by a number'),
        (f"every {'9' * 5000}s", '"every" is followed by a number'),
    ],
)
def test_a_bad_schedule_is_refused_with_its_text_and_the_reason(schedule: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        check_schedule(schedule)
    assert str(caught.value).startswith(f"{schedule!r} is not a cron line: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"schedule": "bad"}, "'bad' is not a cron line: it has 1 fields"),
        ({"timezone": "Europe/Pariss"}, "'Europe/Pariss' is not a time zone"),
        ({"timezone": "Europe"}, "'Europe' is not a time zone"),
        ({"timezone": "../UTC"}, "'../UTC' is not a time zone"),
        ({"misfire": "twice"}, "'twice' is not a misfire policy: skip, once, all"),
        ({"grace_s": -1.0}, "a grace of -1.0 is not from 0"),
        ({"grace_s": math.nan}, "a grace of nan is not from 0"),
        ({"grace_s": LONGEST_GRACE_S + 1.0}, "is not from 0 to 31622400 seconds"),
    ],
)
def test_an_entry_is_refused_with_the_bad_value(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        check(replace(entry(), **fields))  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_line_that_has_gone_by_for_ever_has_no_next_slot() -> None:
    with pytest.raises(ValueError, match="'0 0 30 2 \\*' never comes again"):
        next_slot(entry("0 0 30 2 *"), NOON)


def test_the_module_costs_no_import_of_croniter() -> None:
    code = "import sys, pyworkers.protocol.cron; sys.exit('croniter' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


# The days on which clocks change

ALL_DAY = "0 * * * *"


@pytest.mark.fault("T4")
@pytest.mark.parametrize(
    ("zone", "day", "line", "expected"),
    [
        # New York, 02:00 -> 03:00: the time in the gap comes an hour later on the clock, at its old instant.
        (NEW_YORK, "2026-03-08", "30 1 * * *", ["01:30-0500"]),
        (NEW_YORK, "2026-03-08", "30 2 * * *", ["03:30-0400"]),
        (NEW_YORK, "2026-03-08", "0,30 1-3 * * *", ["01:00-0500", "01:30-0500", "03:00-0400", "03:30-0400"]),
        (NEW_YORK, "2026-03-08", "45 2,3 * * *", ["03:45-0400"]),
        (NEW_YORK, "2026-03-08", "15,45 2 * * *", ["03:15-0400", "03:45-0400"]),
        # A time of the gap that fires behind times that the clock shows later.
        (NEW_YORK, "2026-03-08", "10,50 2,3 * * *", ["03:10-0400", "03:50-0400"]),
        (NEW_YORK, "2026-03-08", ALL_DAY, hourly(0, 2, "-0500") + hourly(3, 24, "-0400")),
        (
            NEW_YORK,
            "2026-03-08",
            "0 */2 * * *",
            hourly(0, 2, "-0500", 2) + hourly(4, 24, "-0400", 2),
        ),
        (NEW_YORK, "2026-03-08", "0 */24 * * *", ["00:00-0500"]),
        # 02:00 -> 01:00: the first 01:30 is the one; intervals go on through the second hour.
        (NEW_YORK, "2026-11-01", "30 1 * * *", ["01:30-0400"]),
        (NEW_YORK, "2026-11-01", "30 2 * * *", ["02:30-0500"]),
        (NEW_YORK, "2026-11-01", "0,30 1-2 * * *", ["01:00-0400", "01:30-0400", "02:00-0500", "02:30-0500"]),
        (NEW_YORK, "2026-11-01", ALL_DAY, hourly(0, 2, "-0400") + hourly(1, 24, "-0500")),
        (
            NEW_YORK,
            "2026-11-01",
            "0 */2 * * *",
            hourly(0, 2, "-0400", 2) + hourly(2, 24, "-0500", 2),
        ),
        # Paris, 02:00 -> 03:00 and 03:00 -> 02:00.
        (PARIS, "2026-03-29", "30 2 * * *", ["03:30+0200"]),
        (PARIS, "2026-03-29", "0 3 * * *", ["03:00+0200"]),
        (PARIS, "2026-03-29", ALL_DAY, hourly(0, 2, "+0100") + hourly(3, 24, "+0200")),
        (PARIS, "2026-10-25", "30 2 * * *", ["02:30+0200"]),
        (PARIS, "2026-10-25", "0 2 * * *", ["02:00+0200"]),
        (PARIS, "2026-10-25", ALL_DAY, hourly(0, 3, "+0200") + hourly(2, 24, "+0100")),
        # Lord Howe, by half an hour: 02:00 -> 02:30 and 02:00 -> 01:30.
        (LORD_HOWE, "2026-10-04", "15 2 * * *", ["02:45+1100"]),
        (LORD_HOWE, "2026-10-04", "30 2 * * *", ["02:30+1100"]),
        # 02:10 and 02:20 become 02:40 and 02:50, among those that the clock shows.
        (
            LORD_HOWE,
            "2026-10-04",
            "*/10 2 * * *",
            ["02:30+1100", "02:40+1100", "02:50+1100"],
        ),
        (LORD_HOWE, "2026-10-04", "5,35 2 * * *", ["02:35+1100"]),
        (LORD_HOWE, "2026-10-04", "25,45 2 * * *", ["02:45+1100", "02:55+1100"]),
        (LORD_HOWE, "2026-10-04", ALL_DAY, hourly(0, 2, "+1030") + hourly(3, 24, "+1100")),
        (LORD_HOWE, "2026-04-05", "45 1 * * *", ["01:45+1100"]),
        (LORD_HOWE, "2026-04-05", "0 2 * * *", ["02:00+1030"]),
        (LORD_HOWE, "2026-04-05", "30 * * * *", [f"{hour:02}:30+1100" for hour in (0, 1)]
            + [f"{hour:02}:30+1030" for hour in range(1, 24)]),
        # Sydney, 02:00 -> 03:00 in October and 03:00 -> 02:00 in April.
        (SYDNEY, "2026-10-04", "30 2 * * *", ["03:30+1100"]),
        (SYDNEY, "2026-10-04", "0 */2 * * *", hourly(0, 2, "+1000", 2) + hourly(4, 24, "+1100", 2)),
        (SYDNEY, "2026-04-05", "30 2 * * *", ["02:30+1100"]),
        (SYDNEY, "2026-04-05", "0 */2 * * *", hourly(0, 3, "+1100", 2) + hourly(2, 24, "+1000", 2)),
        # Havana's day begins at 01:00, and a day named by its first hour must not be lost.
        ("America/Havana", "2026-03-08", "@daily", ["01:00-0400"]),
        ("America/Havana", "2026-03-08", "0 */24 * * *", ["01:00-0400"]),
        ("America/Havana", "2026-11-01", "@daily", ["00:00-0400"]),
    ],
)  # fmt: skip
def test_on_the_day_of_a_clock_change(zone: str, day: str, line: str, expected: list[str]) -> None:
    assert of_day(line, zone, day) == expected


@pytest.mark.parametrize(
    ("line", "zone", "after", "expected"),
    [
        # The next slot lies behind a clock change, or behind the one and the one back, ...
        ("0 */6 1 7 *", NEW_YORK, "2026-01-01T00:00-05:00", "2026-07-01T00:00-04:00"),
        ("0 0 1 7 *", NEW_YORK, "2026-01-01T00:00-05:00", "2026-07-01T00:00-04:00"),
        ("30 * 1 11 *", NEW_YORK, "2025-12-01T00:00-05:00", "2026-11-01T00:30-04:00"),
        ("30 1-9 1 11 *", NEW_YORK, "2025-12-01T00:00-05:00", "2026-11-01T01:30-04:00"),
        # ... or in an hour that comes again after a clock change, and the next time on the clock in a year.
        ("30 * 24 10 *", "America/Nuuk", "2026-10-24T23:30-01:00", "2026-10-24T23:30-02:00"),
        ("30 0-23 24 10 *", "America/Nuuk", "2026-10-24T23:30-01:00", "2027-10-24T00:30-01:00"),
    ],
)
def test_a_slot_in_the_distance_is_found_by_the_offset_of_there(
    line: str, zone: str, after: str, expected: str
) -> None:
    found = next_slot(entry(line, zone), datetime.fromisoformat(after).timestamp())
    assert datetime.fromtimestamp(found, zoneinfo.ZoneInfo(zone)).isoformat(timespec="minutes") == expected


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        (NEW_YORK, "2026-03-08"),
        (NEW_YORK, "2026-11-01"),
        (LORD_HOWE, "2026-10-04"),
        (LORD_HOWE, "2026-04-05"),
    ],
)
@pytest.mark.parametrize("line", ["*/5 * * * *", "10,50 1-3 * * *", "*/7 0-4 * * *", "0 */2 * * *"])
def test_it_does_not_matter_from_where_one_looks(zone: str, day: str, line: str) -> None:
    begin = int(midnight(date.fromisoformat(day), zone)) - HOUR
    end = begin + 6 * HOUR
    one = entry(line, zone)
    whole = list(slots(one, begin, end))
    assert len(whole) > 1
    for after in range(begin, end, 290):
        rest = [slot for slot in whole if slot > after]
        assert list(slots(one, after, end)) == rest
        assert not rest or next_slot(one, after) == rest[0]


def test_every_second_of_a_repeated_hour_is_found_without_counting_through_it() -> None:
    # 01:30 comes at 05:30 and 06:30 UTC; a search that starts with the first pass takes 3600 steps.
    one = entry("* * * * * *", NEW_YORK)
    second_pass = NOON - 5 * HOUR - 1800
    started = time.process_time()
    for moment in range(second_pass, second_pass + 100):
        assert next_slot(one, moment) == moment + 1
    assert time.process_time() - started < 5


class Change(NamedTuple):
    """A clock change of a zone; ``moment`` is the first quarter of an hour behind it, in UTC."""

    zone: str
    moment: datetime


@cache
def changes() -> list[Change]:
    """All clock changes of all zones in one year."""
    days = [datetime(YEAR, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(366)]
    found: list[Change] = []
    for name in sorted(zoneinfo.available_timezones()):
        offsets = [offset(name, day) for day in days]
        for day, old, new in zip(days, offsets, offsets[1:], strict=False):
            if old != new:
                quarters = (day + timedelta(minutes=15 * number) for number in range(97))
                found.append(Change(name, next(moment for moment in quarters if offset(name, moment) == new)))
    return found


def offset(zone: str, moment: datetime) -> timedelta | None:
    return moment.astimezone(zoneinfo.ZoneInfo(zone)).utcoffset()


def around(change: Change) -> tuple[list[date], float, float]:
    """The local days around a clock change, and the instants between which they lie."""
    today = change.moment.astimezone(zoneinfo.ZoneInfo(change.zone)).date()
    days = [today + timedelta(days=number) for number in (-1, 0, 1)]
    end = midnight(today + timedelta(days=2), change.zone)
    return days, midnight(days[0], change.zone) - 1, end - 1


def test_the_sweep_meets_the_changes_of_all_zones() -> None:
    zones = {change.zone for change in changes()}
    assert {NEW_YORK, PARIS, LORD_HOWE, SYDNEY, "America/Nuuk", "Antarctica/Troll", "Africa/Cairo"} <= zones
    assert len(changes()) == 2 * len(zones) > 300


@pytest.mark.parametrize("line", ["30 2 * * *", "30 0 * * *"])
def test_a_fixed_local_time_fires_once_on_every_day_of_every_zone(line: str) -> None:
    for change in changes():
        days, begin, end = around(change)
        zone = zoneinfo.ZoneInfo(change.zone)
        found = [datetime.fromtimestamp(slot, zone) for slot in slots(entry(line, change.zone), begin, end)]
        assert [moment.date() for moment in found] == days, change
        on_time = [moment for moment in found if (moment.minute, moment.hour) == (30, int(line.split()[1]))]
        assert len(on_time) >= len(days) - 1, change


def test_an_interval_follows_elapsed_time_in_every_zone() -> None:
    for change in changes():
        moment = change.moment.timestamp()
        found = list(slots(entry("*/15 * * * *", change.zone), moment - 2.5 * HOUR, moment + 2.5 * HOUR))
        assert len(found) == 20, change
        assert {later - earlier for earlier, later in pairwise(found)} == {900}, change


def test_zones_without_a_change_have_a_fixed_time_every_day_too() -> None:
    steady = zoneinfo.available_timezones() - {change.zone for change in changes()}
    assert "Asia/Kathmandu" in steady
    for zone in steady:
        assert of_day("30 2 * * *", zone, f"{YEAR}-06-15")[0].startswith("02:30"), zone


class Shift(NamedTuple):
    """A change of a zone's offset at ``moment``, in epoch seconds: of the season, or for good."""

    zone: str
    moment: int
    old: int
    new: int


@cache
def shifts() -> list[Shift]:
    """The changes of offset from 2005 to 2030, in all zones; those that many zones share are taken once.

    Of those by an hour, which are most and which the sweep above meets for one year, every eighth.
    """
    week = 7 * DAY
    found: dict[tuple[int, int, int], Shift] = {}
    begin, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2005, 2031))
    for name in sorted(zoneinfo.available_timezones()):
        zone = zoneinfo.ZoneInfo(name)
        old = seconds_ahead(zone, begin)
        for moment in range(begin + week, end, week):
            if seconds_ahead(zone, moment) != old:
                seconds = range(moment - week, moment)
                place = bisect_left(seconds, True, key=lambda at: seconds_ahead(zone, at) != old)
                first = moment - week + place
                new = seconds_ahead(zone, first)
                found.setdefault((first, old, new), Shift(name, first, old, new))
                old = new
    odd = [shift for shift in found.values() if abs(shift.new - shift.old) != HOUR]
    return odd + [shift for shift in found.values() if abs(shift.new - shift.old) == HOUR][::8]


def seconds_ahead(zone: zoneinfo.ZoneInfo, moment: int) -> int:
    ahead = datetime.fromtimestamp(moment, zone).utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())


def test_the_sweep_of_a_quarter_of_a_century_meets_shifts_of_all_kinds() -> None:
    minutes = {(shift.new - shift.old) // 60 for shift in shifts()}
    assert {-180, -120, -60, -30, 30, 60, 120, 180, 1440} <= minutes
    assert len(shifts()) > 300
    by_zone = Counter(shift.zone for shift in shifts())
    assert by_zone["Asia/Pyongyang"] == 2  # half an hour, for three years: nothing to do with summer


@pytest.mark.parametrize("line", ["30 0 * * *", "30 1 * * *", "15 2 * * *", "59 23 * * *"])
def test_a_fixed_local_time_fires_once_a_day_at_every_shift(line: str) -> None:
    for shift in shifts():
        if abs(shift.new - shift.old) == DAY:  # Samoa has its own test
            continue
        # From the midnight of the day before to that of the day after the next, by the clocks of then.
        today = (shift.moment + shift.old) // DAY * DAY
        begin, end = today - DAY - shift.old, today + 3 * DAY - shift.new
        found = list(slots(entry(line, shift.zone), begin - 1, end - 1))
        assert len(found) == 4, shift
        moved = abs(shift.new - shift.old)
        assert all(abs(later - earlier - DAY) <= moved for earlier, later in pairwise(found)), shift


def test_an_interval_follows_elapsed_time_at_every_shift() -> None:
    for shift in shifts():
        begin, end = shift.moment - 2 * HOUR, shift.moment + 2 * HOUR
        found = list(slots(entry("*/15 * * * *", shift.zone), begin - 1, end - 1))
        assert [slot - found[0] for slot in found] == list(range(0, 4 * HOUR, 900)), shift


def test_a_calendar_day_that_a_zone_skips_has_no_slot_of_its_own() -> None:
    # The exception: Samoa went from 2011-12-29 to 2011-12-31. What the 30th would have had falls together
    # with what the 31st has.
    zone = zoneinfo.ZoneInfo("Pacific/Apia")
    begin = midnight(date(2011, 12, 29), "Pacific/Apia") - 1
    found = slots(entry("30 2 * * *", "Pacific/Apia"), begin, begin + 3 * DAY)
    assert [datetime.fromtimestamp(slot, zone).isoformat() for slot in found] == [
        "2011-12-29T02:30:00-10:00",
        "2011-12-31T02:30:00+14:00",
        "2012-01-01T02:30:00+14:00",
    ]


# What is due


def ago(*seconds: float) -> list[float]:
    return [NOON - second for second in seconds]


@pytest.mark.parametrize(
    ("misfire", "grace_s", "last", "expected"),
    [
        # now is NOON + 2, and the slots come every 5 minutes: NOON is on time, what was before is missed.
        ("skip", 900.0, NOON - 1000, ago(0)),
        ("once", 900.0, NOON - 1000, ago(0)),
        ("all", 900.0, NOON - 1000, ago(600, 300, 0)),
        ("all", 400.0, NOON - 1000, ago(300, 0)),
        ("all", 0.0, NOON - 1000, ago(0)),
        ("skip", 0.0, NOON - 1, ago(0)),
        ("once", 0.0, NOON - 1, ago(0)),
        ("skip", 900.0, NOON, []),
        ("once", 900.0, NOON, []),
        ("all", 900.0, NOON, []),
        ("skip", 900.0, None, []),
        ("once", 900.0, None, []),
        ("all", 900.0, None, []),
    ],
)
def test_the_slot_of_just_now_is_fired_and_older_ones_by_policy(
    misfire: str, grace_s: float, last: float | None, expected: list[float]
) -> None:
    assert due(entry(misfire=misfire, grace_s=grace_s), last, NOON + 2.0) == expected


@pytest.mark.parametrize(
    ("misfire", "grace_s", "expected"),
    [
        # now is NOON + 100, and nothing is on time.
        ("skip", 900.0, []),
        ("once", 900.0, ago(0)),
        ("all", 900.0, ago(600, 300, 0)),
        ("once", 99.0, []),
        ("once", 101.0, ago(0)),
        ("all", 101.0, ago(0)),
    ],
)
def test_missed_slots_are_caught_up_within_the_grace(
    misfire: str, grace_s: float, expected: list[float]
) -> None:
    assert due(entry(misfire=misfire, grace_s=grace_s), NOON - 850, NOON + 100.0) == expected


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
def test_seconds_that_are_late_by_a_moment_are_all_on_time(misfire: str) -> None:
    assert due(entry("every 1s", misfire=misfire), NOON, NOON + 3.2) == [NOON + 1, NOON + 2, NOON + 3]


@pytest.mark.parametrize("schedule", ["every 1s", "* * * * * *"])
def test_of_more_than_a_thousand_missed_slots_the_oldest_are_dropped(schedule: str) -> None:
    one = entry(schedule, misfire="all", grace_s=30.0 * DAY)
    assert due(one, NOON - 20 * DAY, NOON) == list(range(NOON - MOST_MISSED + 1, NOON + 1))


def test_the_latest_of_a_month_of_seconds_is_found_without_counting_through_them() -> None:
    # Every second until 03:59:59; from the begin of the grace on, they are 432,000.
    one = entry("* 0-3 * * * *", misfire="once", grace_s=30.0 * DAY)
    started = time.process_time()
    assert due(one, NOON - 40 * DAY, NOON) == [NOON - 8 * HOUR - 1]
    assert time.process_time() - started < 5


# The job


def test_the_envelope_is_sidekiqs_with_the_slot() -> None:
    one = entry(args=(1, "ü", None), options={"backtrace": 5, "tags": ["a"]}, retry=3)
    assert (
        job_of(one, NOON, NOON + 0.25, "0123456789abcdef01234567").payload
        == (
            '{"retry":3,"queue":"mail","class":"Sweep","args":[1,"ü",null],"backtrace":5,"tags":["a"],'
            '"jid":"0123456789abcdef01234567","created_at":1793534400.25,"enqueued_at":1793534400.25,'
            '"cron":{"name":"sweep","slot":1793534400}}'
        ).encode()
    )


@pytest.mark.parametrize("retry", [True, False, 0, 7])
def test_the_retry_of_the_entry_is_that_of_its_jobs(retry: bool | int) -> None:
    stored = envelope.decode(job_of(entry(retry=retry), NOON, NOON + 1.0, "j").payload)["retry"]
    assert stored == retry
    assert type(stored) is type(retry)
    assert "retry" not in envelope.decode(job_of(entry(), NOON, NOON + 1.0, "j").payload)


def test_an_entry_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        entry().schedule = "* * * * *"  # type: ignore[misc]
