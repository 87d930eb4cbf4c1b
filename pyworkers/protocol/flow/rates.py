"""Rates: the rates of limits in memory, for tests of applications, by the rules of limits/ask.lua.

Pure; used by ``pyworkers.testing``. Jobs run one at a time there, so there is always a slot.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyworkers.protocol.limits import Want, period_of


class RateWindows:
    """The starts of the last window of each limit."""

    def __init__(self) -> None:
        self._starts: dict[str, list[float]] = {}

    def start(self, wants: Iterable[Want], now: float) -> float | None:
        """Note a start and return None if all limits of a job allow it now; else the time at which they do.

        ``now`` is in epoch seconds.
        """
        rates = [want for want in wants if want.window_s]
        turns = [turn for want in rates if (turn := self._turn(want, now)) is not None]
        if turns:
            return max(turns)
        for want in rates:
            self._starts.setdefault(want.key, []).append(now)
        return None

    def _turn(self, want: Want, now: float) -> float | None:
        # A job starts at once here: the margin of the window is for those that start a little later.
        period_s = period_of(want.window_s)
        starts = [at for at in self._starts.get(want.key, ()) if at > now - period_s]
        self._starts[want.key] = starts
        return None if len(starts) < want.most else starts[-want.most] + period_s
