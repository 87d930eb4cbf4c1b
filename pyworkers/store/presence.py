"""Presence: this server in Sidekiq's registry of processes, where its Web UI and API find it.

Runs in the master's event loop. Nothing here decides who owns a job: that is the lease's business, and these
keys may be lost without harm. The commands are those of Sidekiq 8's launcher.rb (protocol.md, Servers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.connections import errors_translated

# Longer than go-workers2 waits (60 s, and 5 s between its looks) before it takes a silent server out of
# ``processes``: its heartbeat ends for good if it finds the name there without a hash.
TTL_S = 90
"""How long a server without heartbeats is shown."""
# Sidekiq's launcher.rb and scheduled.rb.
_WORK_TTL_S, CLEANUP_S = 60, 60


class PresenceStore:
    """``sidekiq6``: write the running jobs under their earlier name as well."""

    def __init__(self, redis: Redis, keys: Keys, sidekiq6: bool = False) -> None:
        self._redis = redis
        self._keys = keys
        self._sidekiq6 = sidekiq6

    async def time(self) -> float:
        """The server's clock, in epoch seconds."""
        with errors_translated():
            seconds, microseconds = await self._redis.time()
        return float(seconds) + float(microseconds) / 1e6

    async def beat(
        self,
        identity: str,
        fields: Mapping[Any, str | int | bytes],
        jobs: Mapping[Any, str] | None,
        *,
        signalled: bool = True,
    ) -> bytes | None:
        """Write this server's heartbeat and running jobs; ``jobs`` None: none, as before.

        Returns a signal left for this server, or None; read only if ``signalled``.
        """
        keys = self._keys
        with errors_translated():
            async with self._redis.pipeline(transaction=jobs is not None) as pipe:
                for work in self._work(identity) if jobs is not None else ():
                    pipe.unlink(work)
                    if jobs:
                        pipe.hset(work, mapping=jobs)
                        pipe.expire(work, _WORK_TTL_S)
                pipe.sadd(keys.processes, identity)
                pipe.hset(keys.process(identity), mapping=fields)
                pipe.expire(keys.process(identity), TTL_S)
                if signalled:
                    pipe.rpop(keys.signals(identity))
                replies: list[Any] = await pipe.execute()
        word: bytes | None = replies[-1] if signalled else None
        return word

    async def leave(self, identity: str) -> None:
        """Take this server out of the registry; its hash runs out by itself, as Sidekiq's do."""
        with errors_translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.srem(self._keys.processes, identity)
                for work in self._work(identity):
                    pipe.unlink(work)
                await pipe.execute()

    async def prune(self) -> list[bytes]:
        """Remove the servers whose hash has expired, unless that was done a moment ago."""
        keys = self._keys
        with errors_translated():
            if not await self._redis.set(keys.process_cleanup, "1", nx=True, ex=CLEANUP_S):
                return []
            names = [name async for name in self._redis.sscan_iter(keys.processes)]
            if not names:
                return []
            async with self._redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.hget(keys.process("").encode() + name, "info")
                infos = await pipe.execute()
            dead = [name for name, info in zip(names, infos, strict=True) if info is None]
            if dead:
                await self._redis.srem(keys.processes, *dead)
        return dead

    def _work(self, identity: str) -> list[str]:
        keys = self._keys
        return [keys.work(identity), keys.workers(identity)] if self._sidekiq6 else [keys.work(identity)]
