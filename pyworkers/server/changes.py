"""Changes: reads the keys that other programs change, and passes each reply to the part that follows the key.

Runs in the master's event loop. The keys hold the first due job of each set, the paused queues, the
cancelled jobs, and so on. Redis announces changes, so nothing is sent while nothing changes. If Redis does
not announce them, all keys are read once a second, in one command. An error of one key goes only to its part,
which logs it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.keys import Keys
from pyworkers.server.fetching.idle import IdleQueues
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.store.calls import Request
from pyworkers.store.changes import ChangesStore

T = TypeVar("T")

LOOK_S = 1.0
"""The interval in which a key is read if Redis does not announce its changes."""
# Changes that come together are read together: at most 20 reads a second, and no job is delayed by it.
_GAP_S = 0.05
# In this interval, test the connection: a half-open one, or one to a former primary, announces nothing.
_ASK_S = 10.0
# After this time, read a key without an announcement, in case one was lost.
_DISTRUST_S = 300.0


@dataclass(frozen=True, slots=True)
class Follow:
    """A followed key: its kind of read in ``look.lua``, and the function that takes the reply.

    ``take`` gets the PyworkersError where the read fails. Unless changes are announced, the key is read each
    ``every_s`` seconds.
    """

    kind: str
    take: Callable[[Any], None]
    every_s: float = LOOK_S


class Follower(Protocol):
    """A part of the master that follows keys."""

    def follows(self, keys: Keys, identity: str, /) -> Mapping[str, Follow]:
        """The keys to read, each with the function that takes its reply."""


class UnchangedKeys:
    """Tells whether keys are as a read has found them, so that a part which looks often reads seldom.

    True for ``life_s`` seconds at most, in case an announcement was lost; never where none are made.
    """

    def __init__(self, store: ChangesStore, life_s: float) -> None:
        self._store = store
        self._life_s = life_s
        self._reads: dict[str, tuple[int, float]] = {}
        """By key, the agreement on which it was read, and when, in monotonic seconds."""
        store.listen(self._announced)

    async def read(self, request: Request[T], *names: str) -> T:
        """The reply to a command that reads these keys. Raises RedisUnavailableError and StoreError."""
        # Before the read: the announcement of a later change may arrive with the reply.
        self._reads.update(dict.fromkeys(names, (self._store.agreements, time.monotonic())))
        try:
            return await self._store.send(request)
        except BaseException:
            self._announced(names)
            raise

    def has(self, *names: str) -> bool:
        """True if none of these keys has changed since it was read."""
        since, agreement = time.monotonic() - self._life_s, self._store.agreements
        reads = [self._reads.get(name, (-1, -math.inf)) for name in names]
        return self._store.announced and all(one[0] == agreement and one[1] > since for one in reads)

    def forget(self) -> None:
        """Count all keys as changed."""
        self._reads.clear()

    def _announced(self, names: Iterable[str] | None) -> None:
        for name in self._reads.keys() & set(names or self._reads):
            del self._reads[name]


class Changes(Part):
    """Reads the keys of ``parts``. ``on_return`` is called with the first reply after an outage.

    ``leave`` is awaited when a primary answers after a replica: it opens the other connections of the server
    again, because some may only read, too, and what they read of the replica may be out of date.
    """

    name = "changes"

    def __init__(
        self,
        config: RedisConfig,
        keys: Keys,
        health: Health,
        on_return: Callable[[], object],
        parts: Sequence[Follower],
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(health)
        self._keys = keys
        self._leave = leave
        self._store = ChangesStore(config, self.nudge)
        self.idle = IdleQueues(self._store, health)
        self._distrusted = time.monotonic()
        self._on_return = on_return
        self._parts = parts
        self._follows: Mapping[str, Follow] = {}
        self._due: dict[str, float] = {}
        self._asked = -math.inf
        self._found_replica = False
        self._away = False

    def follow(self, identity: str) -> None:
        """Read the keys that the parts of this incarnation need, from now on."""
        parts = [part.follows(self._keys, identity) for part in self._parts]
        follows = self._follows = {name: follow for part in parts for name, follow in part.items()}
        self._due = dict.fromkeys(follows, -math.inf)
        self._store.follow({name: one.kind for name, one in follows.items()})
        self.nudge()

    def unchanged(self, life_s: float) -> UnchangedKeys:
        """For another part that looks at keys: whether they are as it has found them."""
        return UnchangedKeys(self._store, life_s)

    async def connect_to(self, config: RedisConfig) -> None:
        """Use this Redis from now on, which has the same data."""
        await self._store.connect_to(config)

    async def close(self) -> None:
        """Close the connection."""
        await self.idle.close()
        await self._store.close()

    async def look(self) -> float:
        """Read the keys that are due."""
        now = time.monotonic()
        await self.read_due(now)
        self._returned()
        if now - self._distrusted >= _DISTRUST_S:
            self._distrusted = now
            self.idle.look_again()
        await asyncio.sleep(_GAP_S)
        return self._next() - time.monotonic()

    def failed(self, backoff_s: float) -> float:
        """Note the outage, so that its end is passed on."""
        self._away = True
        return backoff_s

    async def read_due(self, now: float) -> None:
        """Read the keys due at ``now``, in monotonic seconds. Raises RedisUnavailableError and StoreError."""
        if now - self._asked >= _ASK_S:
            await self._ask()
            self._asked = now
        names = self._store.stale | {name for name, due in self._due.items() if due <= now}
        if names:
            replies = await self._store.read(names)
            # During the read, ``follow`` may have dropped a key: with a lost lease, or an ordered queue.
            for name in replies.keys() & self._follows.keys():
                self._due[name] = now + self._pause_s(name, replies[name])
                self._follows[name].take(replies[name])

    async def _ask(self) -> None:
        try:
            await self._store.ask()
        except PyworkersError as error:
            # Until a primary answers: between the two, there may be no server at the address.
            self._found_replica |= error.code == "READONLY"
            raise
        if self._found_replica:
            await self._leave()
            self._found_replica = False

    def _pause_s(self, name: str, reply: Any) -> float:
        if self._store.announced and not isinstance(reply, PyworkersError):
            return _DISTRUST_S
        return self._follows[name].every_s

    def _next(self) -> float:
        """The latest time of the next read, in monotonic seconds."""
        return -math.inf if self._store.stale else min([*self._due.values(), self._asked + _ASK_S])

    def _returned(self) -> None:
        if self._away:
            self._away = False
            self._on_return()
