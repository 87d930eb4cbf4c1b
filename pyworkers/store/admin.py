"""Admin: reads and changes queues and sorted sets, each change conditional on a removal.

Used by ``api``, in the command line and in users' programs; never by the server. It moves opaque bytes. No
command that it sends asks for the names of keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pyworkers.config.fields import RedisConfig, mask_url
from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.store import DEAD_MAX_AGE_S, DEAD_MAX_JOBS
from pyworkers.store.transport.connections import Connection, connect, errors_translated

SIGNAL_TTL_S = 60
"""Sidekiq's api.rb: a process that does not pick a signal up in time is gone."""


@dataclass(frozen=True, slots=True)
class Move:
    """One member of a sorted set: where it goes, and as what. ``queue`` None buries it as it is."""

    member: bytes
    payload: bytes = b""
    queue: str | None = None


class Waiting(NamedTuple):
    """A waiting job, and where it was seen last, from the left end on."""

    raw: bytes
    place: int


class Admin:
    """The operations over one client, which connects when it is first used, in whatever process that is.

    All raise RedisUnavailableError and StoreError. May be shared by threads.
    """

    def __init__(self, config: RedisConfig) -> None:
        self.config = config
        self.keys = Keys(config.namespace)

    def __repr__(self) -> str:
        return f"Admin({mask_url(self.config.url)!r}, namespace={self.config.namespace!r})"

    @cached_property
    def redis(self) -> Connection:
        """The client; closed with this object."""
        return connect(self.config)

    def run(self, *command: Any) -> Any:
        """The reply to one command."""
        with errors_translated():
            return self.redis.execute_command(command[0], *_wire(command[1:]))

    def run_all(self, commands: Sequence[Sequence[Any]], *, at_once: bool = False) -> list[Any]:
        """The replies to several commands in one round trip; ``at_once``: as one transaction."""
        if not commands:
            return []
        with errors_translated(), self.redis.pipeline(transaction=at_once) as pipe:
            for command in commands:
                pipe.execute_command(command[0], *_wire(command[1:]))
            replies: list[Any] = pipe.execute()
        return replies

    def look(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """As ``run_all``, with None for what Redis refuses: keys of a wrong type, which others wrote."""
        if not commands:
            return []
        with errors_translated(), self.redis.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(command[0], *_wire(command[1:]))
            replies = pipe.execute(raise_on_error=False)
        return [None if isinstance(reply, Exception) else reply for reply in replies]

    def move(self, zset: str, moves: Sequence[Move], now: float) -> int:
        """Move members of a sorted set. How many this call moved: others were quicker with the rest.

        Raises StoreError if a destination is a key of another type; its members stay where they are.
        """
        names = [zset, self.keys.dead, self.keys.queues]
        places: dict[str, int] = {}
        args: list[Any] = [repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS]
        for move in moves:
            place = 0
            if move.queue is not None:
                place = places.setdefault(move.queue, len(names) + len(places) + 1)
            args += (move.member, move.payload, place, move.queue or "")
        names += (self.keys.queue(name) for name in places)
        with errors_translated():
            moved, broken = scripts.load("move").call(self.redis, _wire(names), _wire(args))
        if broken:
            key = broken[0].decode(errors="backslashreplace")
            raise StoreError(f"{key} is a key of another type; {len(broken)} jobs stay where they are")
        return len(moved)

    def remove(self, zset: str, members: Sequence[bytes]) -> int:
        """Remove members of a sorted set for good. How many this call removed."""
        return int(self.run("ZREM", zset, *members))

    def reschedule(self, zset: str, member: bytes, score: float) -> bool:
        """Give a member another score; False if it is not there any more."""
        commands = [("ZADD", zset, "XX", repr(score), member), ("ZSCORE", zset, member)]
        return self.run_all(commands, at_once=True)[1] is not None

    def withdraw(self, queue: str, jobs: Sequence[Waiting], now: float, *, to_dead: bool) -> int:
        """Take waiting jobs out of a queue, for good or ``to_dead``. How many this call took."""
        names = _wire([self.keys.queue(queue), self.keys.dead])
        taken = 0
        while jobs:
            args: list[Any] = [repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, int(to_dead)]
            for raw, place in jobs:
                args += (raw, place)
            with errors_translated():
                number, *again = scripts.load("withdraw").call(self.redis, names, args)
            if number < 0:
                raise StoreError(f"{self.keys.dead} is a key of another type; the jobs stay in their queue")
            taken += number
            # What was looked for far away is known by now, so every round gets on.
            jobs = [jobs[place - 1] for place in again[0]]
        return taken

    def clear(self, zset: str) -> int:
        """Remove all members of a sorted set. How many there were."""
        return int(self.run_all([("ZCARD", zset), ("UNLINK", zset)], at_once=True)[0])

    def clear_queue(self, queue: str) -> int:
        """Remove all waiting jobs of a queue, and the queue from the known ones. How many there were."""
        key = self.keys.queue(queue)
        commands = [("LLEN", key), ("UNLINK", key), ("SREM", self.keys.queues, queue)]
        return int(self.run_all(commands, at_once=True)[0])

    def pause(self, queue: str) -> bool:
        """Pause a queue; False if it was paused already."""
        return bool(self.run("SADD", self.keys.paused, queue))

    def resume(self, queue: str) -> bool:
        """Undo ``pause``; False if the queue was not paused."""
        return bool(self.run("SREM", self.keys.paused, queue))

    def signal(self, identity: str, word: str) -> None:
        """Leave a signal for a process, which picks it up with its next beat (Sidekiq's api.rb)."""
        key = self.keys.signals(identity)
        self.run_all([("LPUSH", key, word), ("EXPIRE", key, SIGNAL_TTL_S)], at_once=True)

    def counters(self, days: Sequence[str]) -> list[tuple[int, int]]:
        """Processed and failed of each day, ``YYYY-MM-DD`` in UTC; of all time for ``""``."""
        names = [self.keys.stat(name, day) for day in days for name in ("processed", "failed")]
        values = [_count(value) for value in self.run("MGET", *names)] if names else []
        return list(zip(values[::2], values[1::2], strict=True))

    def set_counters(self, values: Mapping[str, int]) -> None:
        """Set counters of all time."""
        self.run("MSET", *(part for name, value in values.items() for part in (self.keys.stat(name), value)))


def _wire(parts: Sequence[Any]) -> list[Any]:
    """Texts as bytes: also names that are not UTF-8 come back as they were."""
    return [part.encode(errors="surrogateescape") if isinstance(part, str) else part for part in parts]


def _count(stored: bytes | None) -> int:
    return int(stored) if stored and stored.isdigit() else 0
