"""How many jobs of each class ran and failed, and how long they took."""

from __future__ import annotations

from typing import Any

from pyworkers.api.metrics import CLASS_METRICS, METRICS, Period, read_class_metrics, read_metrics
from pyworkers.api.parameters import Parameter, paging
from pyworkers.web.json.resources import Ask, Resource

_PERIOD = Parameter(
    "period", "The last hour or day.", default="hour", choices=tuple(period.value for period in Period)
)


async def _metrics(ask: Ask) -> dict[str, Any]:
    given = ask.given
    period, paged = Period(given["period"]), {"first": given["first"], "count": given["count"]}
    found = await ask.site.read(read_metrics(ask.keys, period, **paged, match=given["class"] or ""))
    return found.as_dict()


async def _of_class(ask: Ask) -> dict[str, Any]:
    steps = read_class_metrics(ask.keys, ask.names["class"], Period(ask.given["period"]))
    return (await ask.site.read(steps)).as_dict()


RESOURCES = (
    Resource(
        "/metrics",
        "The classes whose jobs ran, those with most time first.",
        _metrics,
        METRICS,
        [_PERIOD, *paging(), Parameter("class", "Only classes whose name contains this text.")],
    ),
    Resource(
        "/metrics/{class}", "One class, in parts of the period.", _of_class, CLASS_METRICS.schema, [_PERIOD]
    ),
)
