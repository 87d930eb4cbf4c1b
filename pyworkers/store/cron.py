"""Cron store: which slots have been fired, and the one script that fires one.

Runs in the master's event loop. It moves opaque bytes, reads no clock, and never decides what is due.
Errors of redis-py leave as RedisUnavailableError or StoreError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redis.asyncio import Redis

from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.replies import integer


class CronStore:
    """The slots of all cron entries in one namespace, over the connection pool of the caller."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def fire(
        self, name: str, slot: int, payload: bytes, queue: str, life_s: int, definition: bytes = b""
    ) -> bool:
        """Enqueue the job of a slot, unless that was done. True if this call did it.

        Nor if the entry is paused, or is a run-time entry that is no longer defined by ``definition``. After
        ``life_s`` seconds it is forgotten which slot it was, so they must outlast the entry's grace. Safe to
        send again after a lost reply.
        """
        keys = self._keys
        names = [keys.cron_slot(name, slot), keys.queues, keys.queue(queue), keys.cron_last]
        names += (keys.cron_entries, keys.cron_paused)
        args: list[Any] = [life_s, queue, payload, name, slot, definition]
        with errors_translated():
            return bool(await scripts.load("fire")(self._redis, names, args, integer))

    async def last_slots(self) -> dict[str, int]:
        """The last slot that was fired, or since when it is known, by name of the entry (epoch seconds)."""
        with errors_translated():
            found: dict[str, int] = await self._redis.execute_command(
                "HGETALL", self._keys.cron_last, read=_slots
            )
        return found

    async def register(self, names: Iterable[str], now: int) -> None:
        """Remember that entries are known since ``now``; of one that is known already, nothing changes."""
        with errors_translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                for name in names:
                    pipe.hsetnx(self._keys.cron_last, name, now)
                await pipe.execute()

    async def version(self) -> bytes | None:
        """What is another value after each change at run time; None before the first."""
        with errors_translated():
            found: bytes | None = await self._redis.execute_command("GET", self._keys.cron_version)
        return found

    async def changes(self) -> tuple[dict[bytes, bytes], set[bytes]]:
        """The definitions of the run-time entries by name, and the names of the paused entries."""
        with errors_translated():
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hgetall(self._keys.cron_entries)
                pipe.smembers(self._keys.cron_paused)
                entries, paused = await pipe.execute()
        return entries, set(paused)

    async def declare(self, identity: str, entries: bytes, life_s: int) -> None:
        """Show the entries of a server's code and configuration to people, for ``life_s`` seconds."""
        with errors_translated():
            key = self._keys.cron_declared(identity)
            await self._redis.execute_command("SET", key, entries, "EX", life_s)


def _slots(stored: dict[bytes, bytes]) -> dict[str, int]:
    return {name.decode(): int(slot) for name, slot in stored.items()}
