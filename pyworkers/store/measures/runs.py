"""Runs: the jobs that ran and failed in each minute, by queue, as servers of pyworkers count them.

``add`` is run by the master with its counters; ``read_rates`` by ``api``. A server adds to the minute in
which it writes, so a rate is as exact as these writes are frequent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Request, Steps, command, decoded, every
from pyworkers.store.values import as_count

TTL_S = 2 * 3600


def add(keys: Keys, runs: Mapping[str, int], now: float) -> Request[list[Any]]:
    """Add runs and failures, by field of ``Keys.runs``, to the minute of ``now`` (epoch seconds)."""
    key = keys.runs(int(now // 60))
    added = [command("HINCRBY", key, name, jobs) for name, jobs in runs.items()]
    return every([*added, command("EXPIRE", key, TTL_S)])


def read_rates(keys: Keys, now: float) -> Steps[Mapping[str, float]]:
    """The runs and failures a minute, by field of ``Keys.runs``.

    The mean over the last full minute before ``now`` (epoch seconds) and the current one.
    """
    minute, past_s = divmod(now, 60)
    commands = [command("HGETALL", keys.runs(int(minute) - back)) for back in (0, 1)]
    jobs: Counter[str] = Counter()
    for stored in (yield from every(commands, Mode.LENIENT)):
        for name, number in (stored or {}).items():
            jobs[decoded(name)] += as_count(number)
    return {name: number * 60 / (60 + past_s) for name, number in jobs.items()}


def read_trends(
    keys: Keys, queues: Sequence[str], now: float, minutes: int
) -> Steps[Mapping[str, list[int]]]:
    """The runs of these queues in each of the last minutes, with failed ones; the last one is not over."""
    last = int(now // 60)
    fields = [f"{queue}|p" for queue in queues]
    commands = [command("HMGET", keys.runs(last - back), *fields) for back in reversed(range(minutes))]
    found: dict[str, list[int]] = {queue: [] for queue in queues}
    for stored in (yield from every(commands if fields else [], Mode.LENIENT)):
        for queue, number in zip(queues, stored or [None] * len(queues), strict=True):
            found[queue].append(as_count(number))
    return found
