"""Conditions: what is wrong now, for each alarm of the configuration.

Reads with the steps of ``api``; only what some alarm needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from pyworkers.api.cronjob import CronJob, read_cron_page
from pyworkers.api.stats import Stats, read_stats
from pyworkers.config.alarming import KINDS
from pyworkers.config.fields import AlarmConfig
from pyworkers.protocol.limits import LimitStats
from pyworkers.store.admin import Admin
from pyworkers.store.alarms import count_died
from pyworkers.store.flow.limituses import uses
from pyworkers.store.heartbeat import clock
from pyworkers.text import counted, duration, valid

_NAMED = 5
"""The things that a message names; of the others it says how many they are."""
_FAILED = ("dead", "failed")


class Looked(NamedTuple):
    """What was read of one Redis, each part only if an alarm needs it."""

    now: float
    stats: Stats | None
    died: int
    cron: Sequence[CronJob]
    limits: Sequence[LimitStats]


def look(admin: Admin, alarms: Iterable[AlarmConfig]) -> Looked:
    """Read what these alarms need. Raises PyworkersError."""
    kinds = {alarm.when for alarm in alarms}
    keys = admin.keys
    stats = admin.run(read_stats(keys)) if kinds & {"latency", "silent"} else None
    # By Redis' clock: the clock of this machine may be wrong.
    now = admin.run(clock()) if stats is None else stats.now
    return Looked(
        now,
        stats,
        admin.run(count_died(keys, now)) if "dead" in kinds else 0,
        admin.run(read_cron_page(keys)).jobs if "cron" in kinds else (),
        admin.run(uses(keys)) if "limit" in kinds else (),
    )


def wrong(alarm: AlarmConfig, seen: Mapping[str, Looked]) -> str | None:
    """What is wrong by this alarm, in one line; None if nothing is. ``seen``: by the name of the Redis."""
    over = KINDS[alarm.when].over if alarm.over is None else alarm.over
    found: list[tuple[float, str]] = []
    for name, part in seen.items():
        where = f" ({name})" if len(seen) > 1 else ""
        found += [
            (weight, text + where)
            for subject, weight, text in CONDITIONS[alarm.when](part, over or 0.0)
            if alarm.match is None or fnmatchcase(subject, alarm.match)
        ]
    if not found:
        return None
    worst = [text for _, text in sorted(found, key=lambda one: -one[0])]
    more = len(worst) - _NAMED
    return "; ".join(worst[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


_Found = Sequence[tuple[str, float, str]]
"""Subjects with their weight, the worst has the largest, and what is wrong with each."""


def _latency(seen: Looked, over: float) -> _Found:
    assert seen.stats is not None
    late = ((queue, queue.latency_s(seen.now)) for queue in seen.stats.queues)
    return [
        (
            queue.name,
            late_s,
            f"{valid(queue.name)}: the next job has waited for {duration(late_s)}; size {queue.size:,}",
        )
        for queue, late_s in late
        if late_s > over
    ]


def _dead(seen: Looked, over: float) -> _Found:
    text = f"{counted(seen.died, 'job')} died in the last five minutes"
    return [("", float(seen.died), text)] if seen.died > over else []


def _silent(seen: Looked, over: float) -> _Found:
    assert seen.stats is not None
    found = []
    for server in seen.stats.servers:
        silent_s = seen.now - server.beat
        if server.silent(seen.now) and silent_s > over:
            text = f"{valid(server.identity)}: the last heartbeat was {duration(silent_s)} ago"
            found.append((server.identity, silent_s, text))
    return found


def _cron(seen: Looked, _over: float) -> _Found:
    found = []
    for job in seen.cron:
        if not job.paused and (run := job.last_run) is not None and run.state in _FAILED:
            found.append(
                (job.name, run.slot, f"{valid(job.name)}: the last run is {run.state}: {valid(run.error)}")
            )
    return found


def _limit(seen: Looked, over: float) -> _Found:
    return [
        (limit.key, float(limit.waiting), f"{valid(limit.key)}: {counted(limit.waiting, 'job')} wait for it")
        for limit in seen.limits
        if limit.used >= limit.most and limit.waiting > over
    ]


CONDITIONS: Mapping[str, Callable[[Looked, float], _Found]] = {
    "latency": _latency,
    "dead": _dead,
    "silent": _silent,
    "cron": _cron,
    "limit": _limit,
}
"""What finds each kind of alarm (``config/alarming.py``); ``look`` reads what it needs."""
