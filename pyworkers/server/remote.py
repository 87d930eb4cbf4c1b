"""Orders: passes on which queues are paused and which jobs are cancelled.

Runs in the master's event loop. What is wanted comes from ``Changes``. While Redis cannot be asked, the last
answer holds.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from pyworkers.errors import PyworkersError
from pyworkers.protocol.keys import Keys
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.changes import Follow
from pyworkers.server.health import Health
from pyworkers.server.iterations import Iterations
from pyworkers.server.parts import Part
from pyworkers.server.pool.running import Running
from pyworkers.store.orders import OrdersStore, texts

# Notes of jobs that have ended are removed this often, and Sidekiq's cancellations are looked for at some of
# the turns. It costs nothing while there are none, and no job that runs for long.
_TURN_S = 1.0


class Orders(Part):
    """``on_paused`` is called with the paused queues again and again, ``on_cancelled`` for new notes.

    ``running`` are the jobs that are with a worker.
    """

    name = "orders"
    eager = True

    def __init__(
        self,
        store: OrdersStore,
        health: Health,
        cancellations: Cancellations,
        on_paused: Callable[[frozenset[str]], Awaitable[None]],
        on_cancelled: Callable[[], None],
        running: Callable[[], Iterable[Running]],
    ) -> None:
        super().__init__(health)
        self._store = store
        self._cancellations = cancellations
        self._iterations = Iterations(store, running)
        self._on_paused = on_paused
        self._on_cancelled = on_cancelled
        self._errors: dict[str, PyworkersError] = {}
        self.paused: frozenset[str] = frozenset()

    def follows(self, keys: Keys, _identity: str) -> dict[str, Follow]:
        """What it needs to know, by key."""
        return {
            keys.paused: Follow("members", self.see_paused),
            keys.cancelled: Follow("notes", self.see_notes),
        }

    def see_paused(self, reply: Any) -> None:
        """Take the names of the paused queues."""
        if self._readable("paused", reply):
            self.paused = texts(reply)
        self.nudge()

    def see_notes(self, reply: Any) -> None:
        """Take the number and the latest of the cancelled jobs."""
        if self._readable("notes", reply):
            self._store.noticed = reply
        self.nudge()

    def _readable(self, what: str, reply: Any) -> bool:
        self._errors.pop(what, None)
        if isinstance(reply, PyworkersError):
            self._errors[what] = reply
            return False
        return True

    async def look(self) -> float:
        """Pass on what is wanted, and look for Sidekiq's cancellations."""
        await self.turn()
        await self._iterations.look(time.monotonic())
        return _TURN_S

    def failed(self, backoff_s: float) -> float:
        """No sooner than after a success."""
        return max(_TURN_S, backoff_s)

    async def turn(self) -> None:
        """Pass on what is wanted. Raises PyworkersError, after what could be read was passed on."""
        try:
            cancelled = await self._store.notes()
        finally:
            await self._on_paused(self.paused)
        if cancelled is not None:
            self._cancellations.use(cancelled)
            if self._cancellations.noted:
                self._on_cancelled()
        for error in self._errors.values():
            raise error
        await self.forget()

    async def forget(self) -> None:
        """Remove the notes of the jobs that have ended. Raises PyworkersError."""
        if settled := self._cancellations.take_settled():
            await self._store.forget(settled)
            self._cancellations.removed(settled)
