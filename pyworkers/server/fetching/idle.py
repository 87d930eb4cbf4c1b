"""Idle: the empty queues of a server, each until Redis announces a change of its key.

Runs in the master's event loop, on the connection of ``Changes``, for all groups together: an idle queue
sends nothing and has no connection. In a server of few queues each queue waits by a blocking move instead,
which saves a round trip. It takes no job: the fetcher does, after a wake-up.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from itertools import islice

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server.health import Health
from pyworkers.server.waiting import cancel, now
from pyworkers.store.changes import ChangesStore

_FEW = 4
"""A server of at most this many queues has a connection for each of them."""
# Keys of one command.
_PER_READ = 1000
# Redis announces a key, too, when its table of tracked keys is full (tracking-table-max-keys). To read the
# key again evicts another one, and so on: 18,000 wake-ups a second. Queues that get jobs that often are busy,
# and have their own connections.
_MANY_PER_S = 300
# A doubt costs a read in this interval, for this time.
_PAUSE_S = 0.5
_DOUBT_S = 30.0

log = logs.get_logger()


class Doubt:
    """Whether announcements say little, because Redis evicts tracked keys: then queues are read first.

    Begins with too many announcements; a read that finds jobs in half of the announced queues ends it.
    """

    def __init__(self) -> None:
        self._since = -math.inf
        self._number = 0
        self._until = -math.inf
        self._in_vain = False

    def announced(self, number: int) -> bool:
        """Note this many announcements. Returns True if they are in doubt."""
        at = now()
        if at - self._since >= 1:
            self._since, self._number = at, 0
        self._number += number
        if self._number > _MANY_PER_S:
            self._until = at + _DOUBT_S
        return self._active

    @property
    def _active(self) -> bool:
        return now() < self._until

    @property
    def confirmed(self) -> bool:
        """True while most of the announced queues are found empty."""
        return self._in_vain and self._active

    def read(self, announced: int, filled: int) -> None:
        """Note how many of the queues that were announced in doubt hold jobs."""
        self._in_vain = 2 * filled < announced
        if not self._in_vain:
            self._number, self._until = 0, -math.inf


class IdleQueues:
    """The empty queues by key, each with the function that its next job calls (with True)."""

    def __init__(self, store: ChangesStore, health: Health) -> None:
        self._store = store
        self._health = health
        self._wakes: dict[str, Callable[[bool], None]] = {}
        self._unread: dict[str, bool] = {}
        """The keys to read, True for one announced in doubt: only after that, Redis announces a change."""
        self._reading: asyncio.Task[None] | None = None
        self._doubt = Doubt()
        self._told = False
        """True once the log has named the full table."""
        self._served = 0
        self._refused_at = -1
        """The ``agreements`` of the store at the last refusal, which ends as soon as the number grows."""
        store.listen(self._announced)

    def serve(self, queues: int) -> None:
        """Note how many queues the server has."""
        self._served = queues

    @property
    def able(self) -> bool:
        """False where Redis announces nothing."""
        return self._refused_at != self._store.agreements

    @property
    def watches(self) -> bool:
        """True if empty queues are watched here, False if each waits by a blocking move."""
        return self._served > _FEW and self.able

    def watch(self, key: str, wake: Callable[[bool], None]) -> None:
        """Call ``wake`` once the queue with this key may hold a job, also if it does already.

        With False, if that is not announced here.
        """
        self._wakes[key] = wake
        self._read_soon((key,))

    def forget(self, key: str) -> None:
        """Watch a queue no more."""
        self._wakes.pop(key, None)
        self._unread.pop(key, None)

    def look_again(self) -> None:
        """Read all keys, in case an announcement was lost."""
        self._read_soon(self._wakes)

    async def close(self) -> None:
        """End the read that is under way."""
        self._wakes.clear()
        if self._reading is not None:
            await cancel([self._reading])

    def _announced(self, names: Iterable[str] | None) -> None:
        """These keys have changed; None: perhaps all, and no further change is announced."""
        if names is None:
            self.look_again()
            return
        found = [name for name in names if name in self._wakes]
        if self._doubt.announced(len(found)):
            self._read_soon(found, in_doubt=True)
        else:
            self._wake(found)

    def _wake(self, names: Iterable[str], filled: bool = True) -> None:
        for name in names:
            self._unread.pop(name, None)
            if (wake := self._wakes.pop(name, None)) is not None:
                wake(filled)

    def _read_soon(self, names: Iterable[str], in_doubt: bool = False) -> None:
        self._unread.update(dict.fromkeys(names, in_doubt))
        if self._unread and self._reading is None:
            self._reading = asyncio.create_task(self._read(), name="idle queues")
            self._reading.add_done_callback(self._read_ended)

    async def _read(self) -> None:
        while self._unread:
            if self._doubt.confirmed:
                await asyncio.sleep(_PAUSE_S)
            for _ in range(0, len(self._unread), _PER_READ):
                await self._read_some()

    async def _read_some(self) -> None:
        names = list(islice(self._unread, _PER_READ))
        # Before the read: the announcement of a later change may arrive with the reply.
        doubtful = {name for name in names if self._unread.pop(name)}
        try:
            filled = await self._store.filled(names)
        except PyworkersError as error:
            if error.code == "NOPERM":
                self._refuse(error.message)
                return
            self._unread.update(dict.fromkeys((name for name in names if name in self._wakes), False))
            await asyncio.sleep(self._health.failed(error))
            return
        self._health.ok()
        if self._store.refused:
            self._refuse("Redis announces no changes")
            return
        self._judge(doubtful, filled)
        self._wake(filled)

    def _judge(self, doubtful: set[str], filled: Iterable[str]) -> None:
        if not doubtful:
            return
        self._doubt.read(len(doubtful), len(doubtful.intersection(filled)))
        if self._doubt.confirmed and not self._told:
            self._told = True
            hint = "raise tracking-table-max-keys of Redis above the number of the queues of all servers"
            log.warning("tracking.full", queues=self._served, hint=hint)

    def _refuse(self, reason: str) -> None:
        """Have each queue wait by a blocking move, until Redis agrees."""
        self._refused_at = self._store.agreements
        hint = "each queue has its own connection: allow CLIENT TRACKING"
        log.warning("tracking.refused", queues=self._served, reason=reason, hint=hint)
        self._wake(list(self._wakes), filled=False)

    def _read_ended(self, task: asyncio.Task[None]) -> None:
        self._reading = None
        if not task.cancelled():
            # A defect ends the server.
            task.result()
            self._read_soon(())
