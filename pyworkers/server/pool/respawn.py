"""Respawn: delays the start of workers after failed starts.

Runs in the master's event loop; used by the pool. A start fails if the worker cannot be forked, or ends
before its first job. Without the delay, a broken start-up hook would keep the machine busy with forks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Waits of 0.1 s, 0.2 s, … 30 s.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 30.0
# Failed starts in a row until ``failing`` is called: a single one may have a passing cause, such as a kill
# from outside.
_FAILING = 2


class Respawn:
    """Calls ``again`` after a growing delay, and ``failing`` when starts begin to fail or succeed again.

    At the end of each delay, ``count`` gets the number of starts that failed in it.
    """

    def __init__(
        self,
        again: Callable[[], None],
        failing: Callable[[bool], None],
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._again = again
        self._failing = failing
        self._count = count
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
        if self._timer is not None:
            return
        self._failures += 1
        delay = min(_FIRST_DELAY_S * 2 ** (self._failures - 1), _LONGEST_DELAY_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self._due)
        if self._failures == _FAILING:
            self._failing(True)

    def succeeded(self) -> None:
        """Note a successful start: the next failure has the shortest delay again."""
        if self.is_failing:
            self._failing(False)
        self._failures = 0
        self.cancel()

    def cancel(self) -> None:
        """End the delay."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_delay()

    def _end_delay(self) -> None:
        failed, self._in_delay, self._timer = self._in_delay, 0, None
        self._count(failed)

    def _due(self) -> None:
        self._end_delay()
        self._again()
