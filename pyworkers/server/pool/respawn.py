"""Respawn: when to start workers again after some have died before their first job, or could not be started.

Runs in the master's event loop; used by the pool. A broken start-up hook must not make the machine busy with
forking.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Waits of 0.1 s, 0.2 s, … 30 s.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 30.0
# One failed start may be anybody's fault.
_FAILING = 2


class Respawn:
    """Calls ``again`` after a delay that grows, and ``failing`` when starts begin to fail or work again."""

    def __init__(self, again: Callable[[], None], failing: Callable[[bool], None]) -> None:
        self._again = again
        self._failing = failing
        self._failures = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> bool:
        """True while nothing shall be started."""
        return self._timer is not None

    def failed(self) -> None:
        """A start has failed; of several during one delay only the first counts."""
        if self._timer is not None:
            return
        self._failures += 1
        delay = min(_FIRST_DELAY_S * 2 ** (self._failures - 1), _LONGEST_DELAY_S)
        self._timer = asyncio.get_running_loop().call_later(delay, self._due)
        if self._failures == _FAILING:
            self._failing(True)

    def succeeded(self) -> None:
        """A worker is ready: the next failure is a first one again."""
        if self._failures >= _FAILING:
            self._failing(False)
        self._failures = 0
        self.cancel()

    def cancel(self) -> None:
        """Do not wait any longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._again()
