"""The counts and the queues."""

from __future__ import annotations

from typing import Any

from pyworkers.api import Stats
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import PROBLEM, problems_in, read_unsafe
from pyworkers.api.queue import ACTIONS
from pyworkers.api.queuestats import QUEUE
from pyworkers.api.schemas import array
from pyworkers.api.stats import DAY, STATS, read_history, read_stats
from pyworkers.web.json.resources import Ask, Resource, found

# Five years, which Sidekiq keeps (protocol.md, Counters).
_MOST_DAYS = 5 * 365


async def _stats(ask: Ask) -> dict[str, Any]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    return stats.as_dict()


async def _problems(ask: Ask) -> list[dict[str, Any]]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    unsafe = await ask.site.read(read_unsafe(ask.keys))
    return [problem.as_dict() for problem in (*problems_in(stats), *unsafe)]


async def _history(ask: Ask) -> list[dict[str, Any]]:
    days = await ask.site.read(read_history(ask.keys, ask.given["days"]))
    return [day.as_dict() for day in days]


async def _queues(ask: Ask) -> list[dict[str, Any]]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    return [queue.as_dict(stats.now) for queue in stats.queues]


async def _queue(ask: Ask) -> dict[str, Any]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    named = (queue for queue in stats.queues if queue.name == ask.names["name"])
    return found(next(named, None), "queue").as_dict(stats.now)


RESOURCES = (
    Resource("/stats", "All counts: jobs by state, queues, groups and servers.", _stats, STATS.schema),
    Resource("/problems", "What delays or endangers jobs now.", _problems, array(PROBLEM.schema)),
    Resource(
        "/history",
        "The counts of each day, the latest first.",
        _history,
        array(DAY.schema),
        [Parameter("days", "How many days.", "integer", 30, 1, _MOST_DAYS)],
    ),
    Resource("/queues", "All queues.", _queues, array(QUEUE.schema)),
    Resource(
        "/queues/{name}",
        "One queue.",
        _queue,
        QUEUE.schema,
        actions=ACTIONS,
    ),
)
