"""Scale: how many workers a group has now, if their number follows its jobs (``processes = "auto"``).

Runs in the master's event loop. It starts and ends no worker: the pool does. ``Respawn`` is the delay after a
worker has failed to start.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyworkers.server.pool.delivery import Events, GroupEvent

# Looks within the time for which a worker stays without a job.
_LOOKS = 30


class Scale:
    """The sizes of the wanted workers. ``changed`` is called when it wants fewer.

    ``needed`` returns how many workers have a job, or had one since the last call.
    """

    def __init__(self, idle_s: float, needed: Callable[[], int], changed: Callable[[], None]) -> None:
        """``idle_s``: as in ``end_idle_after``."""
        self._pause_s = idle_s / _LOOKS
        self._needed = needed
        self._changed = changed
        self._all: Sequence[int] = ()
        self._least = 0
        self._wanted = 0
        self._seen: deque[int] = deque(maxlen=_LOOKS)
        self._timer: asyncio.TimerHandle | None = None

    def end_idle_after(self, idle_s: float) -> None:
        """Want a worker no more once it had no job for this time. The time begins anew if it is another."""
        if self._pause_s == idle_s / _LOOKS:
            return
        self._pause_s = idle_s / _LOOKS
        self._seen.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._look_later()

    def set(self, sizes: Sequence[int], least: int | None) -> None:
        """Have at most workers of these sizes, and this many at least; None: always all of them."""
        self._all = sizes
        self._least = len(sizes) if least is None else min(least, len(sizes))
        self._wanted = max(self._least, min(self._wanted, len(sizes)))
        self._look_later()

    @property
    def sizes(self) -> Sequence[int]:
        """The sizes of the workers that are wanted now."""
        return self._all[: self._wanted]

    @property
    def most(self) -> int:
        """The number of workers that may be wanted."""
        return len(self._all)

    def grow(self) -> bool:
        """Want another worker; False if there are as many as may be."""
        if self._wanted >= len(self._all):
            return False
        self._wanted += 1
        self._seen.clear()
        self._look_later()
        return True

    def fill(self) -> bool:
        """Want all workers for good; False if it does already."""
        is_new, self._least = self._least < len(self._all), len(self._all)
        self._wanted = self._least
        return is_new

    def _look_later(self) -> None:
        if self._timer is None and self._wanted > self._least:
            self._timer = asyncio.get_running_loop().call_later(self._pause_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._seen.append(self._needed())
        if len(self._seen) == _LOOKS and (wanted := max(self._least, *self._seen)) < self._wanted:
            self._wanted = wanted
            self._seen.clear()
            self._changed()
        self._look_later()

    def close(self) -> None:
        """Want none any more."""
        self.set((), 0)
        if self._timer is not None:
            self._timer.cancel()


# Waits of 0.1 s, 0.2 s, … 30 s.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 30.0
# Failed starts in a row until ``log_failing`` is called: a single one may have a passing cause, such as a
# kill from outside.
_FAILING = 2


@dataclass(frozen=True, slots=True)
class StartDue(GroupEvent):
    """The delay after a failed start is over: missing workers are started."""


class Respawn:
    """The growing delay after failed starts; ``StartDue`` among the ``events`` is its end."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._failures = 0
        self._in_delay = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> bool:
        """True during a delay: no worker may be started."""
        return self._timer is not None

    @property
    def is_failing(self) -> bool:
        """True after several failed starts in a row."""
        return self._failures >= _FAILING

    def failed(self) -> None:
        """Note a failed start; of several during one delay only the first counts."""
        self._in_delay += 1
        if self._timer is None:
            self._failures += 1
            delay = min(_FIRST_DELAY_S * 2 ** (self._failures - 1), _LONGEST_DELAY_S)
            self._timer = asyncio.get_running_loop().call_later(delay, self._events.put_nowait, StartDue())

    def succeeded(self) -> None:
        """Note a successful start: the next failure has the shortest delay again."""
        self._failures = 0

    def end_delay(self) -> int:
        """End the delay. Returns the number of starts that failed in it; 0 if there was no delay."""
        if self._timer is not None:
            self._timer.cancel()
        failed, self._in_delay, self._timer = self._in_delay, 0, None
        return failed
