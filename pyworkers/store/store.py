"""Store: every change of state that the server makes in Redis, each one script.

Runs in the master's event loop. It moves opaque bytes: it never decodes a job, and never decides anything.
Errors of redis-py leave as RedisUnavailableError or StoreError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, TypeVar

import simplejson
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from pyworkers.errors import PyworkersError
from pyworkers.failpoints import hit
from pyworkers.protocol.effects import Effect, arguments, name_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.store import scripts
from pyworkers.store.transport.connections import errors_translated, translate
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import blobs, integer, integers

# Sidekiq's config.rb: 180 days, and its rank trim keeps one less than its 10,000 (protocol.md, Retries).
DEAD_MAX_AGE_S = 180 * 86_400
DEAD_MAX_JOBS = 9_999
STATS_TTL_S = 5 * 365 * 86_400
NOTE_TTL_S = 86_400
"""How long servers refuse a cancelled job that was not found."""
# A tombstone must outlive any owner that may come back: a suspended laptop, a paused container.
TOMBSTONE_TTL_S = 7 * 86_400

T = TypeVar("T")
Settlement = tuple[bytes, Outcome]
# Of these jobs nothing is left, and nothing but the removal to be said.
_GONE = {fate: int(fate) for fate in (Fate.DONE, Fate.DISCARD, Fate.CANCELLED)}


class Exchange(NamedTuple):
    """The jobs taken, and which outcomes came too late (places in the batch, from 0).

    ``error`` says why no more jobs could be taken; what was settled is settled.
    """

    jobs: list[bytes]
    stale: list[int]
    error: PyworkersError | None = None
    failed: Sequence[tuple[Effect, str]] = ()
    """The effects that Redis refused, each with its reason."""


class LeaseState(IntEnum):
    """What a beat found."""

    LOST = 0
    HELD = 1
    RESTORED = 2


class LeaseLostError(Exception):
    """The in-progress lists of this incarnation were recovered by a peer."""


class QueueStore:
    """The operations of one incarnation on the jobs of queues: single commands, over one connection."""

    def __init__(self, redis: Redis | Link, keys: Keys, identity: str) -> None:
        self.redis = redis
        self.keys = keys
        self.identity = identity
        self._exchange_names: dict[tuple[str, str], list[str]] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self.redis.aclose()

    async def exchange(
        self, queue: str, settlements: Sequence[Settlement], wanted: int, now: float
    ) -> Exchange:
        """Settle outcomes and take up to ``wanted`` jobs. Safe to send again after a lost reply.

        Raises LeaseLostError when jobs were wanted and a peer has recovered our lists.
        """
        names = self._exchange_names.get((queue, self.identity)) or self._name_for_exchanges(queue)
        args: list[Any] = [wanted, repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, self.identity, 0]
        effects: list[Effect] = []
        about: list[Any] = []
        for place, (raw, outcome) in enumerate(settlements, 1):
            # Nearly all.
            if outcome is DONE:
                args += (0, raw)
                continue
            if outcome.fate in _GONE:
                args += (_GONE[outcome.fate], raw)
            else:
                args += (int(outcome.fate), raw, repr(outcome.at), outcome.payload)
            for effect in outcome.effects:
                effects.append(effect)
                about += (place, name_of(effect), *arguments(effect))
        args[5] = len(args)
        if effects:
            names = [*names, *(key for effect in effects for key in effect.keys(self.keys))]
            args += about
        read = partial(_exchanged, len(settlements), wanted, effects)
        found = await self._run("exchange", names, args, read)
        if found is None:
            raise LeaseLostError(self.identity)
        return found

    def _name_for_exchanges(self, queue: str) -> list[str]:
        """The keys of the script, once for an incarnation and not for every few jobs."""
        keys = self.keys
        names = self._exchange_names[queue, self.identity] = [
            keys.queue(queue),
            keys.inprogress(queue, self.identity),
            keys.retry,
            keys.schedule,
            keys.dead,
            keys.tombstone(self.identity),
            keys.owners,
        ]
        return names

    async def held(self, queue: str) -> int:
        """How many jobs Redis counts as ours."""
        with errors_translated():
            found: int = await self.redis.execute_command("LLEN", self.keys.inprogress(queue, self.identity))
        return found

    async def inprogress(self, queue: str) -> list[bytes]:
        """The bytes of all jobs that Redis counts as ours, newest first."""
        with errors_translated():
            found: list[bytes] = await self.redis.execute_command(
                "LRANGE", self.keys.inprogress(queue, self.identity), 0, -1
            )
        return found

    async def give_back(self, queue: str, batch: int = 1000) -> int:
        """Return all our jobs of a queue to the end that is popped next. How many there were."""
        keys = self.keys
        names = [keys.inprogress(queue, self.identity), keys.queue(queue), keys.queues]
        total = 0
        while moved := await self._run("give_back", names, [queue, batch], integer):
            total += moved
            hit("mid_give_back")
        return total

    async def _run(self, script: str, names: list[str], args: list[Any], read: Callable[[Any], T]) -> T:
        with errors_translated():
            return await scripts.load(script)(self.redis, names, args, read)


class Store(QueueStore):
    """All operations of one incarnation, over one connection pool."""

    def __init__(self, redis: Redis, keys: Keys, identity: str) -> None:
        super().__init__(redis, keys, identity)
        self.redis: Redis = redis
        self._registered: tuple[str, tuple[str, ...]] | None = None

    async def hold_any(self, queues: Sequence[str]) -> bool:
        """Whether Redis counts a job of one of these queues as ours."""
        if not queues:
            return False
        names = [self.keys.inprogress(queue, self.identity) for queue in queues]
        with errors_translated():
            return bool(await self.redis.execute_command("EXISTS", *names))

    async def beat(self, lease_s: float, queues: Sequence[str]) -> LeaseState:
        """Renew the lease; say which queues this incarnation may hold jobs of, unless Redis knows."""
        known = (self.identity, tuple(queues))
        found = None if known != self._registered else await self._beat(lease_s, "", _renewed)
        if found is None:
            found = await self._beat(lease_s, _dump(queues), LeaseState)
            self._registered = known
        return found

    async def _beat(self, lease_s: float, queues: str, read: Callable[[Any], T]) -> T:
        keys = self.keys
        names = [keys.lease(self.identity), keys.tombstone(self.identity), keys.owners]
        return await self._run("beat", names, [self.identity, int(lease_s * 1000), queues], read)

    async def leave(self, queues: Sequence[str]) -> bool:
        """Forget this incarnation after a stop; False if jobs are left in its lists, for a peer to find."""
        keys = self.keys
        names = [keys.lease(self.identity), keys.owners]
        names += (keys.inprogress(queue, self.identity) for queue in queues)
        return bool(await self._run("leave", names, [self.identity], integer))

    async def silent_owners(self) -> dict[str, list[str]]:
        """The incarnations without a lease, other than this one, each with its queues."""
        with errors_translated():
            found = await self.redis.execute_command("HGETALL", self.keys.owners, read=_queues_by_owner)
            if found.pop(self.identity, None) is None:
                # Lost with its key: the next beat says it again.
                self._registered = None
            leases = [self.keys.lease(identity) for identity in found]
            if not leases or await self.redis.execute_command("EXISTS", *leases) == len(leases):
                return {}
            async with self.redis.pipeline(transaction=False) as pipe:
                for lease in leases:
                    pipe.exists(lease)
                alive = await pipe.execute()
        return {name: queues for (name, queues), lives in zip(found.items(), alive, strict=True) if not lives}

    async def recover(self, identity: str, queues: Sequence[str], most: int) -> int:
        """Return up to ``most`` jobs of a dead incarnation to their queues; -1 if it lives.

        The first call takes it out of ``processes``; the one that returns less than ``most`` forgets it.
        """
        keys = self.keys
        names = [keys.lease(identity), keys.tombstone(identity), keys.owners, keys.queues, keys.processes]
        names += (keys.work(identity), keys.workers(identity), keys.signals(identity))
        for queue in queues:
            names += (keys.inprogress(queue, identity), keys.queue(queue))
        return await self._run("recover", names, [identity, TOMBSTONE_TTL_S, most, *queues], integer)

    async def count(self, counters: Mapping[str, int], day: str) -> None:
        """Add to ``stat:*``; ``day`` is ``YYYY-MM-DD`` in UTC."""
        with errors_translated():
            async with self.redis.pipeline(transaction=False) as pipe:
                for name, increment in counters.items():
                    daily = self.keys.stat(name, day)
                    pipe.incrby(self.keys.stat(name), increment)
                    pipe.incrby(daily, increment)
                    pipe.expire(daily, STATS_TTL_S)
                await pipe.execute()


def _renewed(reply: Any) -> LeaseState | None:
    """None if Redis does not hold the queues of this incarnation."""
    return None if integer(reply) == -1 else LeaseState(reply)


def _exchanged(settled: int, wanted: int, effects: Sequence[Effect], reply: list[Any]) -> Exchange | None:
    """What the exchange script has done; None if it has done nothing, because the lease is lost."""
    if reply == []:
        return None
    stale, jobs, *rest = reply
    if len(blobs(jobs)) > max(0, wanted) or (integers(stale) and not 0 < min(stale) <= max(stale) <= settled):
        raise ValueError
    refusal = translate(ResponseError(rest[0].decode())) if rest and rest[0] else None
    failed = _failed(effects, *rest[1:]) if rest else ()
    return Exchange(jobs, [place - 1 for place in stale], refusal, failed)


def _failed(effects: Sequence[Effect], reply: Sequence[Any] = ()) -> list[tuple[Effect, str]]:
    """The effects of a reply that names their places and reasons in turn."""
    places, reasons = integers(list(reply[::2])), blobs(list(reply[1::2]))
    if places and not 0 < min(places) <= max(places) <= len(effects):
        raise ValueError
    pairs = zip(places, reasons, strict=True)
    return [(effects[place - 1], reason.decode(errors="replace")) for place, reason in pairs]


def _queues_by_owner(owners: dict[bytes, bytes]) -> dict[str, list[str]]:
    return {name.decode(): _load(queues) for name, queues in owners.items()}


def _dump(queues: Sequence[str]) -> str:
    return str(simplejson.dumps(list(queues)))


def _load(stored: bytes) -> list[str]:
    try:
        queues = simplejson.loads(stored)
    except ValueError:
        return []
    return [name for name in queues if isinstance(name, str)] if isinstance(queues, list) else []
