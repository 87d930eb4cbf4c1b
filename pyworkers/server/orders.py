"""Orders: learns which queues are paused and which jobs are cancelled, and says so to whom it concerns.

Runs in the master's event loop: one round trip a second, and none for each job. While Redis cannot be asked,
the last answer holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from pyworkers.errors import PyworkersError
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.weather import Weather
from pyworkers.store.orders import OrdersStore

# People see an order obeyed within two seconds.
_LOOK_S = 1.0


class Orders:
    """``on_paused`` is told the paused queues with every look, ``on_cancelled`` when there are new notes."""

    def __init__(
        self,
        store: OrdersStore,
        weather: Weather,
        cancellations: Cancellations,
        on_paused: Callable[[frozenset[str]], Awaitable[None]],
        on_cancelled: Callable[[], None],
    ) -> None:
        self._store = store
        self._weather = weather
        self._cancellations = cancellations
        self._on_paused = on_paused
        self._on_cancelled = on_cancelled
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
        if seen.cancelled is not None:
            self._cancellations.use(seen.cancelled)
            if self._cancellations.noted:
                self._on_cancelled()
        if seen.paused is not None:
            self.paused = seen.paused
            await self._on_paused(seen.paused)
        for error in seen.errors:
            raise error
        await self.forget()

    async def forget(self) -> None:
        """Remove the notes of the jobs that have ended. Raises PyworkersError."""
        if settled := self._cancellations.take_settled():
            await self._store.forget(settled)
            self._cancellations.removed(settled)
