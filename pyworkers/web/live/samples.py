"""Samples: how many jobs were done, failed and enqueued in each second of the last two minutes.

Pure; kept in the memory of the dashboard. Only servers of pyworkers write their counts each second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pyworkers.api import Stats
from pyworkers.api.metrics import MetricsPart

KEPT = 120
"""The seconds that are kept."""
OLDEST = "oldest"
# A queue is shorter at once when a job starts, and the counters are higher a second or two after its end.
_LAG = 3
# A change in a shorter time says little.
_LEAST_S = 10.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The jobs a second at one time."""

    done: float = 0.0
    failed: float = 0.0
    enqueued: float | None = 0.0
    """None: unknown, before the dashboard has looked."""


class Samples:
    """The rates of each second: the differences between one read and the next."""

    def __init__(self) -> None:
        self._last: Stats | None = None
        self._known: deque[int] = deque(maxlen=_LAG)
        self._rates: deque[Rates] = deque(maxlen=KEPT)
        self._counts: deque[tuple[float, dict[str, int]]] = deque(maxlen=KEPT)
        self._before: list[Rates] = []

    def add(self, stats: Stats) -> None:
        """Add a read; one of the same half second as the last is left out."""
        last = self._last
        passed_s = 0.0 if last is None else stats.now - last.now
        if last is not None and 0 <= passed_s < 0.5:
            return
        if last is not None and passed_s > 0:
            self._rates.extend([self._between(last, stats, passed_s)] * min(KEPT, max(1, round(passed_s))))
        self._last = stats
        self._known.append(_known(stats))
        self._counts.append((stats.now, {**stats.counts(), OLDEST: _oldest_s(stats)}))

    def begin(self, minutes: Sequence[MetricsPart], now: float) -> None:
        """Take the seconds before the first read from the runs by minute, the last of which is not over."""
        if not self._before:
            missing = KEPT - len(self._rates)
            self._before = [_mean(minutes, now - KEPT + second, now) for second in range(missing)]

    def _between(self, last: Stats, stats: Stats, passed_s: float) -> Rates:
        failed = max(0, stats.failed - last.failed)
        done = max(0, stats.processed - last.processed - failed)
        enqueued = max(0, _known(stats) - max(self._known))
        return Rates(done / passed_s, failed / passed_s, enqueued / passed_s)

    def change(self, name: str) -> tuple[int, float] | None:
        """How much a count has changed, and in how many seconds, at most 120; None if not yet known.

        ``OLDEST``: the seconds that the next job of some queue has been waiting.
        """
        if not self._counts:
            return None
        latest, now = self._counts[-1]
        began, before = next((one for one in self._counts if latest - one[0] <= KEPT), self._counts[-1])
        return (now[name] - before[name], latest - began) if latest - began >= _LEAST_S else None

    @property
    def rates(self) -> list[Rates]:
        """The rates by second, the latest last."""
        return [*self._before, *self._rates][-KEPT:]

    @property
    def latest(self) -> Rates:
        """The rates of the last second; zeros before the second read."""
        return self._rates[-1] if self._rates else Rates()


def _oldest_s(stats: Stats) -> int:
    return 0 if stats.oldest is None else round(stats.oldest.latency_s(stats.now))


def _known(stats: Stats) -> int:
    """The jobs that were ever enqueued, but for a constant: those that wait, run or have run.

    Nothing counts them as they are enqueued, by any program. Jobs that are removed lower it.
    """
    return stats.enqueued + stats.busy + stats.processed + stats.expired


def _mean(minutes: Sequence[MetricsPart], at: float, now: float) -> Rates:
    """The means of the minute that has this moment; nothing counts the enqueued jobs of a minute."""
    for minute in reversed(minutes):
        if minute.at <= at:
            seconds = min(60.0, max(1.0, now - minute.at))
            done = max(0, minute.processed - minute.failed)
            return Rates(done / seconds, minute.failed / seconds, enqueued=None)
    return Rates(enqueued=None)
