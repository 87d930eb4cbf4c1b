"""Thresholds: which counts are above the numbers that a person has set, as words and as problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyworkers.api.problems import Problem, Severity, span
from pyworkers.api.queuestats import QueueStats
from pyworkers.api.stats import Stats
from pyworkers.config.thresholds import Threshold

HIGH = "high"
"""The code of the problems of queues; those of all queues together have ``high:`` and the measure."""
_FIX = "[web] thresholds of the configuration has this number"


def above_of_queue(thresholds: Sequence[Threshold], queue: QueueStats, now: float) -> dict[str, str]:
    """The measures of a queue above its thresholds, in words: ``1,840 waiting, above 1,000``."""
    measured = {"waiting": queue.size, "oldest": queue.latency_s(now), "failed": queue.failed_per_min or 0.0}
    words = {
        "waiting": "{:,.0f} waiting, above {:,}".format,
        "oldest": lambda value, above: f"a job that waits for {span(value)}, above {span(above)}",
        "failed": "{:,.0f} failures a minute, above {:,}".format,
    }
    found = _above([one for one in thresholds if one.is_of(queue.name)], measured)
    return {measure: words[measure](measured[measure], above) for measure, above in found.items()}


def above_of_all(thresholds: Sequence[Threshold], stats: Stats, failed: int | None) -> dict[str, str]:
    """What is above a threshold of all queues; ``failed``: the jobs of the last hour, None if unknown."""
    oldest = stats.oldest.latency_s(stats.now) if stats.oldest else 0.0
    found = _above(
        [one for one in thresholds if not one.match],
        {"waiting": stats.enqueued, "oldest": oldest, "failed": failed or 0},
    )
    return {
        measure: f"above {span(above) if measure == 'oldest' else format(above, ',')}"
        for measure, above in found.items()
    }


def problems_above(thresholds: Sequence[Threshold], stats: Stats, failed: int | None) -> Iterator[Problem]:
    """A problem for each measure of all queues that is above its threshold, and one for each such queue."""
    if not thresholds:
        return
    names = {
        "waiting": "the waiting jobs",
        "oldest": "the wait of the oldest job",
        "failed": "failures of an hour",
    }
    for measure, words in above_of_all(thresholds, stats, failed).items():
        message = f"{names[measure]}: {words}"
        yield Problem(Severity.ERROR, f"{HIGH}:{measure}", message, _FIX)
    for queue in stats.queues:
        above = above_of_queue(thresholds, queue, stats.now)
        if above:
            yield Problem(Severity.ERROR, HIGH, f"has {', '.join(above.values())}", _FIX, queue=queue.name)


def _above(thresholds: Sequence[Threshold], measured: Mapping[str, float]) -> dict[str, int]:
    """The highest threshold of each measure that is exceeded."""
    found: dict[str, int] = {}
    for one in thresholds:
        if measured[one.measure] > one.above:
            found[one.measure] = max(one.above, found.get(one.measure, 0))
    return found
