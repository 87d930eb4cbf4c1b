"""Metrics: how many jobs of each class ran and failed, and how long they took, over an hour or a day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import groupby
from typing import Any, Protocol, TypeVar

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.schemas import COUNT, array
from pyworkers.api.target import Where, admin_of
from pyworkers.protocol.histogram import BOUNDS_MS
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.counters import minute_of, ten_minutes_of
from pyworkers.store.measures import metrics
from pyworkers.store.measures.metrics import Period, Sums, percentile

__all__ = [
    "BOUNDS_MS",
    "ClassMetrics",
    "DurationsPart",
    "Metrics",
    "MetricsPart",
    "Period",
    "Window",
    "begins_of",
    "by_begin",
    "read_class_metrics",
    "read_class_names",
    "read_last_hours",
    "read_metrics",
    "read_window",
    "summed",
    "summed_parts",
]
PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True, slots=True)
class MetricsPart:
    """The runs and failures in one part of a period, which begins at ``at`` (epoch seconds)."""

    at: float
    processed: int
    failed: int

    @property
    def done(self) -> int:
        """The runs that did not fail."""
        return max(0, self.processed - self.failed)

    def as_dict(self) -> dict[str, Any]:
        """The part for JSON."""
        return PART.as_dict(self)


PART: Table[MetricsPart] = Table(
    "MetricsPart",
    Column("at", Kind.MOMENT, "Begin"),
    Column("processed", Kind.COUNT),
    Column("done", Kind.COUNT, "Done", only_shown=True),
    Column("failed", Kind.COUNT, "Failed"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DurationsPart:
    """The jobs by duration in a minute of the last hour, or an hour of the last day, from ``at`` on."""

    at: float
    histogram: Sequence[int] = field(repr=False)
    """As in ``ClassMetrics``."""

    @property
    def jobs(self) -> int:
        """The jobs that did not fail."""
        return sum(self.histogram)

    def percentile_ms(self, share: float) -> float | None:
        """As in ``ClassMetrics``."""
        return percentile(self.histogram, share)


@dataclass(frozen=True, slots=True)
class ClassMetrics:
    """The jobs of one class in a period: how many ran and failed; ``total_ms`` is the time of the others.

    ``histogram`` has the number of jobs that did not fail by duration: below each of ``BOUNDS_MS``, and above
    the last. Over a day it has only the jobs on servers of pyworkers, because Sidekiq keeps none that long.
    """

    job_class: str
    processed: int
    failed: int
    total_ms: int
    histogram: Sequence[int] = field(default=(), repr=False)
    trend: Sequence[int] = field(default=(), repr=False)
    """The runs by ten minutes of the last hour, or by hour of the last day, the last one in part. Not in
    ``read_class_metrics``."""
    parts: Sequence[MetricsPart] = field(default=(), repr=False)
    """The minutes, or ten minutes, of the period; only in ``read_class_metrics``."""
    durations: Sequence[DurationsPart] = field(default=(), repr=False)
    """The minutes, or hours, of the period; only in ``read_class_metrics``."""

    @property
    def mean_ms(self) -> float | None:
        """The mean duration of the jobs that did not fail; None without one."""
        jobs = self.processed - self.failed
        return self.total_ms / jobs if jobs > 0 else None

    def percentile_ms(self, share: float) -> float | None:
        """The duration that this share of the jobs does not exceed, by the histogram; None if unknown."""
        return percentile(self.histogram, share)

    def as_dict(self) -> dict[str, Any]:
        """The class for JSON."""
        return CLASS_METRICS.as_dict(self)


def _percentile(title: str, share: float) -> Column[Any]:
    def value(found: ClassMetrics | DurationsPart, _now: float) -> float | None:
        return found.percentile_ms(share)

    return Column(f"{title}_ms", Kind.MILLISECONDS, title, value=value, nullable=True)


class _Part(Protocol):
    @property
    def at(self) -> float: ...


P = TypeVar("P", bound=_Part)
DURATIONS: Table[DurationsPart] = Table(
    "DurationsPart",
    Column("at", Kind.MOMENT, "Begin"),
    Column("jobs", Kind.COUNT, "Jobs", about="The jobs that did not fail."),
    *(_percentile(title, share) for title, share in PERCENTILES),
    Column("histogram", Kind.PARTS, schema=array(COUNT)),
)
CLASS_METRICS: Table[ClassMetrics] = Table(
    "ClassMetrics",
    Column("class", title="Class", value=lambda found, _now: found.job_class, place="metrics", cut=1),
    Column("processed", Kind.COUNT, "Processed", about="The runs, failed ones included."),
    Column("failed", Kind.COUNT, "Failed", tone=lambda failed: "bad" if failed else ""),
    Column("total_ms", Kind.COUNT, about="The time of the runs that did not fail."),
    Column("mean_ms", Kind.MILLISECONDS, nullable=True),
    *(_percentile(title, share) for title, share in PERCENTILES),
    Column("total", Kind.TOOK, "Total", value=lambda found, _now: found.total_ms / 1000, only_shown=True),
    Column("histogram", Kind.PARTS, schema=array(COUNT)),
    Column("trend", Kind.PARTS, schema=array(COUNT), optional=True),
    Column("parts", Kind.RECORDS, table=PART, optional=True),
    Column("durations", Kind.RECORDS, table=DURATIONS, optional=True),
)
METRICS: Table[Metrics] = Table(
    "Metrics",
    Column("period", value=lambda found, _now: found.period.value),
    Column("since", Kind.MOMENT),
    Column("now", Kind.MOMENT),
    Column("total", Kind.COUNT),
    Column("classes", Kind.RECORDS, table=CLASS_METRICS),
)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The classes whose jobs ran from ``since`` to ``now`` (epoch seconds); those that took most time first.

    Servers of pyworkers and of Sidekiq 8 write the counts. ``total`` is the number of all classes;
    ``classes`` may be a page of them.
    """

    period: Period
    since: float
    now: float
    total: int
    classes: Sequence[ClassMetrics] = field(repr=False)

    @classmethod
    def fetch(
        cls, period: Period | str = Period.HOUR, where: Where = None, *, namespace: str | None = None
    ) -> Metrics:
        """The metrics of the last ``hour`` or ``day``.

        Raises ValueError for another period, and ConfigError, RedisUnavailableError and StoreError.
        """
        admin = admin_of(where, namespace)
        return admin.run(read_metrics(admin.keys, Period(period)))

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return METRICS.as_dict(self)


def read_metrics(
    keys: Keys, period: Period = Period.HOUR, *, first: int = 0, count: int | None = None, match: str = ""
) -> Steps[Metrics]:
    """Read the metrics of ``count`` classes from the place ``first`` on; None: of all.

    ``match``: only the classes with this text in their name, in any case.
    """
    span = yield from metrics.span_now(period)
    sums = yield from metrics.read_sums(keys, span)
    wanted = {name: found for name, found in sums.items() if match.lower() in name.lower()}
    ordered = sorted(wanted, key=lambda name: (-wanted[name].total_ms, -wanted[name].processed, name))
    shown = ordered[first : None if count is None else first + count]
    histograms = yield from metrics.read_histograms(keys, span, shown)
    parts = span.trend_parts()
    classes = [
        replace(
            _class_metrics(name, wanted[name], histograms[name]),
            trend=[wanted[name].trend.get(part, 0) for part in parts],
        )
        for name in shown
    ]
    return Metrics(period, span.since.timestamp(), span.now.timestamp(), len(ordered), classes)


def read_class_names(keys: Keys) -> Steps[list[str]]:
    """The names of the classes whose jobs ran in the last hour."""
    return list((yield from metrics.read_sums(keys, (yield from metrics.span_now(Period.HOUR)))))


def read_class_metrics(keys: Keys, job_class: str, period: Period = Period.HOUR) -> Steps[ClassMetrics]:
    """Read the metrics of one class, with the parts of the period; zeros for a class without jobs."""
    span = yield from metrics.span_now(period)
    parts = yield from metrics.read_parts(keys, span, job_class)
    durations = yield from metrics.read_duration_parts(keys, span, job_class)
    histogram = _columns(buckets for _, buckets in durations)
    shown = [MetricsPart(at.timestamp(), found.processed, found.failed) for at, found in parts]
    sums = metrics.merged([found for _, found in parts])
    found = _class_metrics(job_class, sums, histogram, shown)
    return replace(found, durations=[DurationsPart(at.timestamp(), buckets) for at, buckets in durations])


def summed(found: Sequence[ClassMetrics]) -> ClassMetrics:
    """The metrics of one class at several Redis servers; the clocks of two may differ by a part."""
    if len(found) == 1:
        return found[0]
    return ClassMetrics(
        found[0].job_class,
        sum(one.processed for one in found),
        sum(one.failed for one in found),
        sum(one.total_ms for one in found),
        _columns(one.histogram for one in found),
        parts=summed_parts(one.parts for one in found),
        durations=[
            DurationsPart(some[0].at, _columns(part.histogram for part in some))
            for some in by_begin(one.durations for one in found)
        ],
    )


def summed_parts(found: Iterable[Sequence[MetricsPart]]) -> list[MetricsPart]:
    """The runs at several Redis servers."""
    return [
        MetricsPart(some[0].at, sum(part.processed for part in some), sum(part.failed for part in some))
        for some in by_begin(found)
    ]


def by_begin(found: Iterable[Sequence[P]]) -> Iterator[list[P]]:
    """The parts of several Redis servers that begin at the same time, by time.

    Not by their places: one Redis may be read before a minute ends, and the next one after it.
    """
    every = sorted((part for parts in found for part in parts), key=_begin)
    for _, some in groupby(every, key=_begin):
        yield list(some)


def _columns(histograms: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*histograms, strict=True)]


def _begin(part: _Part) -> float:
    return part.at


class Window(Enum):
    """A length of time up to now, in parts of equal length."""

    QUARTER = "15m"
    """In minutes."""
    TWO_HOURS = "2h"
    """In minutes."""
    DAY = "24h"
    """In parts of ten minutes."""
    THREE_DAYS = "72h"
    """In parts of thirty minutes."""


# The number of hashes of each, the minutes of a hash, and how many hashes make a part.
_HASHES = {
    Window.QUARTER: (15, 1, 1),
    Window.TWO_HOURS: (120, 1, 1),
    Window.DAY: (144, 10, 1),
    Window.THREE_DAYS: (432, 10, 3),
}


def read_window(keys: Keys, window: Window) -> Steps[list[MetricsPart]]:
    """Read the runs of all classes in the parts of a window; the last part is not over yet.

    Counted by servers of pyworkers and of Sidekiq 8.
    """
    moments = _moments((yield from metrics.span_now(Period.HOUR)).now, window)
    _, minutes, each = _HASHES[window]
    name_of = minute_of if minutes == 1 else ten_minutes_of
    totals = yield from metrics.read_totals(keys, list(map(name_of, moments)))
    return [
        MetricsPart(moments[start].timestamp(), *map(sum, zip(*totals[start : start + each], strict=True)))
        for start in range(0, len(moments), each)
    ]


def begins_of(now: float, window: Window) -> list[float]:
    """When the parts of a window begin that ends at ``now``; all in epoch seconds, the first one first."""
    moments = _moments(datetime.fromtimestamp(now, UTC), window)
    return [moment.timestamp() for moment in moments[:: _HASHES[window][2]]]


def _moments(now: datetime, window: Window) -> list[datetime]:
    """When the hashes of a window begin."""
    hashes, minutes, each = _HASHES[window]
    now = now.replace(second=0, microsecond=0)
    last = now - timedelta(minutes=now.minute % (minutes * each))
    # The newest part may have begun with an earlier hash than the current one.
    first = last - timedelta(minutes=minutes * (hashes - each))
    return [first + timedelta(minutes=minutes * place) for place in range(hashes)]


def read_last_hours(keys: Keys) -> Steps[tuple[MetricsPart, MetricsPart]]:
    """The runs and failures of the last hour, and of the hour before it, from the counts of ten minutes.

    The part in which an hour begins counts by its share, as if its runs were evenly spread.
    """
    now = (yield from metrics.span_now(Period.HOUR)).now
    begin = now.replace(minute=now.minute // 10 * 10, second=0, microsecond=0)
    moments = [begin - timedelta(minutes=10 * place) for place in range(13)]
    totals = yield from metrics.read_totals(keys, list(map(ten_minutes_of, moments)))
    passed = (now - begin) / timedelta(minutes=10)
    last = _hour_of(totals[:7], 1.0, 1.0 - passed)
    before = _hour_of(totals[6:], passed, 1.0 - passed)
    hour_s = 3600.0
    at = now.timestamp()
    return MetricsPart(at - hour_s, *last), MetricsPart(at - 2 * hour_s, *before)


def _hour_of(totals: Sequence[tuple[int, int]], newest: float, oldest: float) -> tuple[int, int]:
    """The runs and failures in parts of ten minutes, of which the first and the last count by a share."""
    shares = [newest, *[1.0] * (len(totals) - 2), oldest]
    processed, failed = (
        round(sum(total[place] * share for total, share in zip(totals, shares, strict=True)))
        for place in (0, 1)
    )
    return processed, failed


def _class_metrics(
    name: str, sums: Sums, histogram: Sequence[int], parts: Sequence[MetricsPart] = ()
) -> ClassMetrics:
    return ClassMetrics(name, sums.processed, sums.failed, sums.total_ms, histogram, parts=parts)
