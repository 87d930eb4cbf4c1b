"""Thresholds: the numbers that people set, and the counts above them, as words and as problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyworkers.api.actions import Action, Given
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import Problem, Severity, span
from pyworkers.api.queuestats import QueueStats
from pyworkers.api.stats import Stats
from pyworkers.api.target import Admin, AtRedis
from pyworkers.config.thresholds import Threshold, in_force
from pyworkers.errors import BadArgumentError
from pyworkers.store import thresholds as store
from pyworkers.store.thresholds import read_thresholds
from pyworkers.store.values import encodable

__all__ = [
    "ACTIONS",
    "HIGH",
    "MEASURES",
    "REMOVE",
    "SET",
    "THRESHOLD",
    "ListedThreshold",
    "ThresholdSet",
    "above_of_all",
    "above_of_queue",
    "fix_of",
    "listed",
    "plain_queue",
    "problems_above",
    "read_thresholds",
]
HIGH = "high"
"""The code of the problems of queues; problems of all queues together have ``high:`` and the measure."""
_IN_FILE = "set in [web] thresholds of the configuration"
_ON_PAGE = "set on the page Thresholds"
_IN_BOTH = "set in [web] thresholds of the configuration, and on the page Thresholds"
_GLOB = frozenset("*?[")
MEASURES = {"waiting": "waiting jobs", "oldest": "seconds that the oldest job waits", "failed": "failures"}
"""The counts that thresholds are about, in words."""


@dataclass(frozen=True, slots=True)
class ListedThreshold:
    """A threshold of the configuration, or one that a person has set, in a list of both.

    ``replaced``: one of the configuration in place of which another one is in force.
    """

    threshold: Threshold
    replaced: bool = False


def _counts(one: ListedThreshold, _now: float) -> str:
    """What is compared with the number."""
    span_of = (
        f" of {'a minute' if one.threshold.match else 'an hour'}" if one.threshold.measure == "failed" else ""
    )
    return f"{MEASURES[one.threshold.measure]}{span_of}"


def _origin(one: ListedThreshold, _now: float) -> str:
    return "dashboard" if one.threshold.is_set else "configuration"


THRESHOLD: Table[ListedThreshold] = Table(
    "Threshold",
    Column("threshold", title="Threshold", value=lambda one, _now: str(one.threshold), cut=1),
    Column(
        "match", title="Queues", value=lambda one, _now: one.threshold.match, empty="all together",
        about="The pattern of the names of queues; empty: all queues together.",
    ),
    Column("measure", value=lambda one, _now: one.threshold.measure),
    Column("counts", title="Count", value=_counts, only_shown=True),
    Column("above", Kind.COUNT, "Above", value=lambda one, _now: one.threshold.above),
    Column("origin", value=_origin, about="`dashboard` for one that a person has set, or `configuration`."),
    Column("replaced", Kind.FLAG, about="True for one of the configuration if another one is in force."),
    Column("set_in", title="Set in", only_shown=True,
           value=lambda one, now: f"{_origin(one, now)}{', replaced' if one.replaced else ''}"),
)  # fmt: skip


def listed(declared: Sequence[Threshold], stored: Sequence[Threshold]) -> list[ListedThreshold]:
    """All thresholds, from the configuration and from people, in the order of queues and measure."""
    found = in_force(declared, stored)
    rows = [ListedThreshold(one, one not in found) for one in (*declared, *stored)]
    return sorted(rows, key=lambda one: one.threshold)


class ThresholdSet(AtRedis):
    """The thresholds of the dashboard that people have set: numbers above which counts are shown as high.

    They replace thresholds of the configuration that are about the same queues and the same count. With
    several Redis servers, the thresholds in the default one are for all.
    """

    def __iter__(self) -> Iterator[Threshold]:
        """At most fifty, by name. Raises RedisUnavailableError and StoreError."""
        return iter(self._admin.run(read_thresholds(self._admin.keys)))

    def set(self, text: str) -> bool:
        """Set a threshold, as ``mail* oldest > 300``, in place of the one for the same queues and count.

        False if it is set already. Raises BadArgumentError, RedisUnavailableError and StoreError.
        """
        threshold = _parsed(text)
        known = {one.name: one for one in self}
        if threshold == known.get(threshold.name):
            return False
        if threshold.name not in known and len(known) >= store.MOST:
            raise BadArgumentError(
                f"{store.MOST} thresholds are set, which is the most",
                hint="remove one of them, or write this one into [web] thresholds of the configuration",
            )
        self._admin.run(store.write_threshold(self._admin.keys, threshold))
        return True

    def remove(self, text: str) -> bool:
        """Remove a threshold that was set, by its text, or by its name ``mail* oldest``.

        One of the configuration for the same queues and count applies again. False if none is set. Raises
        RedisUnavailableError and StoreError.
        """
        return self._admin.run(store.remove_threshold(self._admin.keys, _name_in(text)))


def _parsed(text: str) -> Threshold:
    """The threshold in a text that may be set. Raises BadArgumentError."""
    try:
        threshold = Threshold.parse(text)._replace(is_set=True)
    except ValueError as error:
        raise BadArgumentError(f"a threshold {str(error)[:500]}") from error
    if not encodable(threshold.name) or len(threshold.name.encode()) > store.LONGEST:
        raise BadArgumentError(f"a threshold has at most {store.LONGEST} bytes before the >, of UTF-8")
    return threshold


def _name_in(text: str) -> str:
    try:
        return Threshold.parse(text).name
    except ValueError:
        return text.strip()


def above_of_queue(thresholds: Sequence[Threshold], queue: QueueStats, now: float) -> dict[str, str]:
    """The measures of a queue above its thresholds, in words: ``1,840 waiting, above 1,000``."""
    return {one.measure: words for one, words in _above_of_queue(thresholds, queue, now)}


def above_of_all(thresholds: Sequence[Threshold], stats: Stats, failed: int | None) -> dict[str, str]:
    """What is above a threshold of all queues; ``failed``: the jobs of the last hour, None if unknown."""
    return {one.measure: words for one, words in _above_of_all(thresholds, stats, failed)}


def problems_above(thresholds: Sequence[Threshold], stats: Stats, failed: int | None) -> Iterator[Problem]:
    """A problem for each measure of all queues that is above its threshold, and one for each such queue."""
    if not thresholds:
        return
    names = {
        "waiting": "the waiting jobs",
        "oldest": "the wait of the oldest job",
        "failed": "failures of an hour",
    }
    for one, words in _above_of_all(thresholds, stats, failed):
        yield Problem(Severity.ERROR, f"{HIGH}:{one.measure}", f"{names[one.measure]}: {words}", _fix(one))
    for queue in stats.queues:
        if above := _above_of_queue(thresholds, queue, stats.now):
            message = f"has {', '.join(words for _, words in above)}"
            fix = fix_of([_fix(one) for one, _ in above])
            yield Problem(Severity.ERROR, HIGH, message, fix, queue=queue.name)


def fix_of(fixes: Sequence[str]) -> str:
    """The fix of several problems with thresholds: where their numbers are set."""
    return fixes[0] if len(set(fixes)) == 1 else _IN_BOTH


def _fix(threshold: Threshold) -> str:
    return _ON_PAGE if threshold.is_set else _IN_FILE


_Above = list[tuple[Threshold, str]]
"""The thresholds that are exceeded, one of each measure, with words."""


def _above_of_queue(thresholds: Sequence[Threshold], queue: QueueStats, now: float) -> _Above:
    measured = {"waiting": queue.size, "oldest": queue.latency_s(now), "failed": queue.failed_per_min or 0.0}
    words = {
        "waiting": "{:,.0f} waiting, above {:,}".format,
        "oldest": lambda value, above: f"a job that waits for {span(value)}, above {span(above)}",
        "failed": "{:,.0f} failures a minute, above {:,}".format,
    }
    found = _highest([one for one in thresholds if one.is_of(queue.name)], measured)
    return [(one, words[one.measure](measured[one.measure], one.above)) for one in found]


def _above_of_all(thresholds: Sequence[Threshold], stats: Stats, failed: int | None) -> _Above:
    oldest = stats.oldest.latency_s(stats.now) if stats.oldest else 0.0
    found = _highest(
        [one for one in thresholds if not one.match],
        {"waiting": stats.enqueued, "oldest": oldest, "failed": failed or 0},
    )
    return [
        (one, f"above {span(one.above) if one.measure == 'oldest' else format(one.above, ',')}")
        for one in found
    ]


def _highest(thresholds: Sequence[Threshold], measured: Mapping[str, float]) -> list[Threshold]:
    """The highest threshold of each measure that is exceeded."""
    found: dict[str, Threshold] = {}
    for one in thresholds:
        if measured[one.measure] > one.above:
            found[one.measure] = max(one, found.get(one.measure, one), key=lambda each: each.above)
    return list(found.values())


def _queues_of(_admin: Admin, given: Given) -> list[str] | None:
    """The queue that a threshold is about; None for all queues, and for a pattern."""
    # Other white space at its end is part of the name.
    queue = plain_queue(_name_in(given["threshold"]).rpartition(" ")[0].rstrip(" "))
    return [queue] if queue else None


def plain_queue(match: str) -> str:
    """The queue of a pattern that is the name of one; empty for any other."""
    return "" if _GLOB & set(match) else match


SET: Action[ListedThreshold] = Action(
    "threshold.set",
    "Set a threshold, in place of the one for the same queues and count.",
    [Parameter("threshold", "As `waiting > 10000` or `mail* oldest > 300`.", required=True)],
    lambda admin, threshold: ThresholdSet(admin).set(threshold),
    done="The threshold {threshold} is set",
    unchanged="The threshold {threshold} is set already",
    command="""Set a threshold of the dashboard, above which a count is shown as high.

    THRESHOLD is written as in [web] thresholds of the configuration. It replaces one for the same queues and
    count, there or set before. With several Redis servers, it is for all.

    \b
    Examples: pyworkers thresholds set 'waiting > 10000'
              pyworkers thresholds set 'mail* oldest > 300'
    """,
    queues=_queues_of,
)
REMOVE: Action[ListedThreshold] = Action(
    "threshold.remove",
    "Remove a threshold that was set. One of the configuration for the same count applies again.",
    [Parameter("threshold", "The threshold, or its name as `mail* oldest`.", required=True)],
    lambda admin, threshold: ThresholdSet(admin).remove(threshold),
    done="The threshold {threshold} is removed",
    unchanged="The threshold {threshold} is not set",
    missing="threshold",
    command="""Remove a threshold that was set: the configuration's, if any, applies again.

    The exit code is 1 if it is not set.

    \b
    Example: pyworkers thresholds remove 'mail* oldest'
    """,
    offered=lambda one: one.threshold.is_set,
    queues=_queues_of,
)
ACTIONS = (SET, REMOVE)
