"""Orders: learns which queues are paused, and says so to whom it concerns.

Runs in the master's event loop: one command a second, and none for each job. While Redis cannot be asked, the
last answer holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pyworkers.errors import PyworkersError
from pyworkers.server.weather import Weather
from pyworkers.store.orders import OrdersStore

# People see an order obeyed within two seconds.
_LOOK_S = 1.0


class Orders:
    """``on_paused`` is told the paused queues with every look."""

    def __init__(
        self,
        store: OrdersStore,
        weather: Weather,
        on_paused: Callable[[frozenset[str]], Awaitable[None]],
    ) -> None:
        self._store = store
        self._weather = weather
        self._on_paused = on_paused
        self.paused: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            pause_s = _LOOK_S
            try:
                await self.look()
                self._weather.up()
            except PyworkersError as error:
                pause_s = max(_LOOK_S, self._weather.down(error))
            await asyncio.sleep(pause_s)

    async def look(self) -> None:
        """One look. Raises PyworkersError, after what could be read was passed on."""
        seen = await self._store.look()
        if seen.paused is not None:
            self.paused = seen.paused
            await self._on_paused(seen.paused)
        for error in seen.errors:
            raise error
