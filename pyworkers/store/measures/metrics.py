"""Metrics: how many jobs of each class ran and failed, and how long they took, over an hour or a day.

Used by ``api``; it changes nothing. The hashes are those that Sidekiq 8 and pyworkers write, by minute and by
ten minutes; the durations of a day are pyworkers' alone (protocol.md, Counters).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum

from pyworkers.protocol.histogram import BOUNDS_MS
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Mode, Steps, command, decoded, every, one
from pyworkers.store.counters import histogram_moments, minute_of, ten_minutes_of
from pyworkers.store.heartbeat import clock
from pyworkers.store.values import as_count

BUCKETS = len(BOUNDS_MS) + 1
_MINUTE, _TEN_MINUTES = timedelta(minutes=1), timedelta(minutes=10)
# Each reply has up to three fields for each class.
_HASHES_PER_CALL = 20
# Of 60 keys each: some 150 KB.
_CLASSES_PER_CALL = 50


class Period(Enum):
    """The length of time that metrics are about."""

    HOUR = "hour"
    """The last 60 minutes, the current one included."""
    DAY = "day"
    """The last 24 hours of the clock, in UTC, the current one included."""


@dataclass(frozen=True, slots=True)
class Span:
    """A period that ends at ``now``, in UTC."""

    period: Period
    now: datetime

    @property
    def since(self) -> datetime:
        """The start of its first minute, or hour."""
        if self.period is Period.HOUR:
            return self.now.replace(second=0, microsecond=0) - 59 * _MINUTE
        return self.now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=23)

    @property
    def step(self) -> timedelta:
        """The length of its parts: one minute, or ten."""
        return _MINUTE if self.period is Period.HOUR else _TEN_MINUTES

    def parts(self) -> Iterator[datetime]:
        """The starts of its minutes, or of its ten minutes."""
        moment = self.since
        while moment <= self.now:
            yield moment
            moment += self.step

    def hash_of(self, part: datetime) -> str:
        """The name of the hash of a part."""
        return minute_of(part) if self.step is _MINUTE else ten_minutes_of(part)

    def hashes(self) -> Iterator[tuple[datetime, str]]:
        """The fewest hashes that cover it, each with its start: of ten minutes where all are in it."""
        moment = self.since
        while moment <= self.now:
            whole = moment.minute % 10 == 0 and (
                self.step is _TEN_MINUTES or moment + _TEN_MINUTES <= self.now + _MINUTE
            )
            yield moment, ten_minutes_of(moment) if whole else minute_of(moment)
            moment += _TEN_MINUTES if whole else _MINUTE

    def trend_part(self, moment: datetime) -> datetime:
        """The start of the ten minutes, or of the hour, to which a moment belongs in a trend."""
        minute = moment.minute // 10 * 10 if self.period is Period.HOUR else 0
        return moment.replace(minute=minute, second=0, microsecond=0)

    def trend_parts(self) -> list[datetime]:
        """All of them, the first one first."""
        return list(dict.fromkeys(map(self.trend_part, self.parts())))

    def histograms(self, keys: Keys, job_class: str) -> list[str]:
        """The keys of the durations of a class, by ``duration_parts``."""
        if self.period is Period.HOUR:
            return [keys.histogram(histogram_moments(job_class, part)[1]) for part in self.parts()]
        return [keys.durations(job_class, int(at.timestamp() // 3600)) for at in self.duration_parts()]

    def duration_parts(self) -> list[datetime]:
        """The starts of the parts that have durations: minutes, or hours."""
        if self.period is Period.HOUR:
            return list(self.parts())
        return [self.since + timedelta(hours=hour) for hour in range(24)]


@dataclass(slots=True)
class Sums:
    """The numbers of a class: runs, failures, and the time of those that did not fail."""

    processed: int = 0
    failed: int = 0
    total_ms: int = 0
    trend: dict[datetime, int] = field(default_factory=dict)
    """The runs by ten minutes of the clock, or by hour."""

    def add(self, kind: str, number: int, part: datetime) -> None:
        """Add a field of a hash; one that is unknown is left out."""
        if kind == "p":
            self.processed += number
            self.trend[part] = self.trend.get(part, 0) + number
        elif kind == "f":
            self.failed += number
        elif kind == "ms":
            self.total_ms += number


def span_now(period: Period) -> Steps[Span]:
    """The period that ends now, by Redis' clock."""
    now = yield from clock()
    return Span(period, datetime.fromtimestamp(now, UTC))


def read_sums(keys: Keys, span: Span) -> Steps[dict[str, Sums]]:
    """The numbers by class."""
    totals: dict[datetime, Counter[bytes]] = {}
    for some in portions(list(span.hashes()), _HASHES_PER_CALL):
        commands = [command("HGETALL", keys.executions(name)) for _, name in some]
        for (moment, _), stored in zip(some, (yield from every(commands, Mode.LENIENT)), strict=True):
            part = totals.setdefault(span.trend_part(moment), Counter())
            for name, number in (stored or {}).items():
                part[name] += as_count(number)
    found: dict[str, Sums] = {}
    for at, counts in totals.items():
        for name, number in counts.items():
            job_class, _, kind = decoded(name).rpartition("|")
            if job_class:
                found.setdefault(job_class, Sums()).add(kind, number, at)
    return found


def read_histograms(keys: Keys, span: Span, classes: Sequence[str]) -> Steps[dict[str, list[int]]]:
    """The number of jobs by duration of each of these classes: one more than ``BOUNDS_MS``."""
    found: dict[str, list[int]] = {}
    size = "H" if span.period is Period.HOUR else "I"
    parts = len(span.duration_parts())
    for some in portions(classes, _CLASSES_PER_CALL):
        names = [name for job_class in some for name in span.histograms(keys, job_class)]
        stored = yield from one("MGET", *names, read=list)
        for job_class, texts in zip(some, portions(stored, parts), strict=True):
            columns = zip(*(_buckets(text or b"", size) for text in texts), strict=True)
            found[job_class] = list(map(sum, columns))
    return found


def read_duration_parts(keys: Keys, span: Span, job_class: str) -> Steps[list[tuple[datetime, list[int]]]]:
    """The number of jobs of one class by duration, in each minute or hour of the period."""
    size = "H" if span.period is Period.HOUR else "I"
    stored = yield from one("MGET", *span.histograms(keys, job_class), read=list)
    parts = zip(span.duration_parts(), stored, strict=True)
    return [(at, list(_buckets(text or b"", size))) for at, text in parts]


def read_parts(keys: Keys, span: Span, job_class: str) -> Steps[list[tuple[datetime, Sums]]]:
    """The numbers of one class in each part of the period."""
    parts = list(span.parts())
    fields = [f"{job_class}|{kind}" for kind in ("p", "f", "ms")]
    commands = [command("HMGET", keys.executions(span.hash_of(part)), *fields) for part in parts]
    found = []
    for part, stored in zip(parts, (yield from every(commands, Mode.LENIENT)), strict=True):
        processed, failed, total_ms = map(as_count, stored or (None, None, None))
        found.append((part, Sums(processed, failed, total_ms)))
    return found


def read_totals(keys: Keys, names: Sequence[str]) -> Steps[list[tuple[int, int]]]:
    """The runs of all classes, and the failures of them, in each of the hashes with these names."""
    found: list[tuple[int, int]] = []
    for some in portions(names, _HASHES_PER_CALL):
        commands = [command("HGETALL", keys.executions(name)) for name in some]
        for stored in (yield from every(commands, Mode.LENIENT)):
            counts = Counter[bytes]()
            for name, number in (stored or {}).items():
                counts[name.rpartition(b"|")[2]] += as_count(number)
            found.append((counts[b"p"], counts[b"f"]))
    return found


def merged(parts: Sequence[Sums]) -> Sums:
    """The sum of the parts."""
    return Sums(
        sum(part.processed for part in parts),
        sum(part.failed for part in parts),
        sum(part.total_ms for part in parts),
    )


def _buckets(stored: bytes, size: str) -> tuple[int, ...]:
    """The numbers of a bitfield, which ends after the last one that is not 0."""
    shape = struct.Struct(f">{BUCKETS}{size}")
    return shape.unpack(stored[: shape.size].ljust(shape.size, b"\0"))


def percentile(buckets: Sequence[int], share: float) -> float | None:
    """The duration in ms that this share of the jobs does not exceed; None without jobs.

    Inside a bucket, the durations count as evenly spread; in the last one, which has no end, as its start.
    """
    wanted = share * sum(buckets)
    if not wanted:
        return None
    below, lower = 0.0, 0.0
    for number, bound in zip(buckets, BOUNDS_MS, strict=False):
        if number and below + number >= wanted:
            return lower + (bound - lower) * (wanted - below) / number
        below, lower = below + number, float(bound)
    return lower
