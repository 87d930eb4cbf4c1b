"""Counts: the counts behind the names of pages in the head of each page, from what the reader has read.

Pure. They cost no read: a page that is shown while no one looks has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from markupsafe import Markup, escape

from pyworkers.api import Stats
from pyworkers.api.causes import Cause
from pyworkers.api.problems import Severity
from pyworkers.api.thresholds import HIGH
from pyworkers.web.showing import compact

COUNTED: Mapping[str, str] = {
    "queues": "enqueued",
    "running": "busy",
    "scheduled": "scheduled",
    "retries": "retries",
    "dead": "dead",
    "servers": "processes",
}
"""The count of each page, by the first segment of its address; Problems has the number of causes."""
PROBLEMS = "problems"
_OF_QUEUES = (HIGH, f"{HIGH}:waiting", f"{HIGH}:oldest")


def counts_of(*known: tuple[Stats, Iterable[Cause]]) -> dict[str, Markup]:
    """The counts of the pages, by the first segments of their addresses; an empty text for 0.

    ``known``: the counts and the causes of each Redis.
    """
    shown = [cause for cause in chain.from_iterable(causes for _, causes in known) if not cause.muted]
    numbers = {page: sum(getattr(stats, name) for stats, _ in known) for page, name in COUNTED.items()}
    found = {page: escape(compact(number)) if number else Markup("") for page, number in numbers.items()}
    tone = "bad" if any(cause.severity is Severity.ERROR for cause in shown) else "warn"
    if found["queues"] and any(cause.code in _OF_QUEUES for cause in shown):
        found["queues"] = Markup('<span class="bad">{} high</span>').format(found["queues"])
    problems = Markup('<span class="{}">{}</span>').format(tone, compact(len(shown))) if shown else Markup("")
    return {**found, PROBLEMS: problems}
