"""Leases: registers an incarnation, renews its lease, and recovers the jobs of those whose lease expired.

Run by the master. Each change of state is one script. An incarnation is dead when its lease has expired in
Redis; this module never decides it otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import simplejson

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, Steps, command, decoded, every, one, script
from pyworkers.store.suspects import ENTRIES_TTL_S
from pyworkers.store.transport.replies import blobs, integer, nonzero
from pyworkers.store.values import names_in

# A tombstone marks an owner whose jobs were recovered. The owner may resume late (a suspended machine, a
# paused container), and must still find it then.
TOMBSTONE_TTL_S = 7 * 86_400


class LeaseState(IntEnum):
    """The state of the lease before it was renewed."""

    LOST = 0
    HELD = 1
    RESTORED = 2


def renew(
    keys: Keys, identity: str, lease_s: float, queues: Sequence[str], *, registered: bool
) -> Steps[LeaseState]:
    """Renew the lease; register the queues whose jobs this incarnation may hold, unless Redis has them.

    ``registered``: Redis had them at the last renewal. If it has lost them since, they are sent again.
    """
    lease_ms = int(lease_s * 1000)
    if registered and (yield from one("PEXPIRE", keys.lease(identity), lease_ms, read=bool)):
        return LeaseState.HELD
    names = [keys.lease(identity), keys.tombstone(identity), keys.owners]
    listed = simplejson.dumps(list(queues))
    return (yield from script("renew", names, [identity, lease_ms, listed], LeaseState, keys.namespace))


def deregister(keys: Keys, identity: str, queues: Sequence[str]) -> Request[bool]:
    """Remove the lease, the registration and the turn of this incarnation after a stop.

    False if jobs are left in its lists: then the registration stays, so that a peer recovers them.
    """
    names = [keys.lease(identity), keys.owners, keys.suspects, keys.turn(keys.owners)]
    names += (keys.inprogress(queue, identity) for queue in queues)
    return script("deregister", names, [identity], nonzero, keys.namespace)


def take_turn(keys: Keys, identity: str, life_s: float, *, held: bool) -> Request[bool]:
    """Take the turn to watch the leases for ``life_s`` seconds; keep it for that long if it is ``held``.

    False if another server has it.
    """
    condition = () if held else ("NX",)
    return one("SET", keys.turn(keys.owners), identity, "PX", int(life_s * 1000), *condition, read=bool)


def is_registered(keys: Keys, identity: str) -> Request[bool]:
    """True if Redis has the queues of this incarnation."""
    return one("HEXISTS", keys.owners, identity, read=nonzero)


def owners(keys: Keys) -> Request[list[str]]:
    """The registered incarnations."""
    return one("HKEYS", keys.owners, read=lambda names: [*map(decoded, blobs(names))])


def silent(keys: Keys, identity: str, owners: Sequence[str]) -> Steps[list[str]]:
    """The incarnations among ``owners``, other than this one, that have no lease."""
    others = [name for name in owners if name != identity]
    leases = [keys.lease(name) for name in others]
    # With its own: while the slot of a cluster moves, a node refuses several keys of which one is missing.
    # Then no server can renew a lease that has expired, and none may be judged.
    asked = [keys.lease(identity), *leases]
    if not leases or (yield from one("EXISTS", *asked, read=integer)) == len(asked):
        return []
    alive = yield from every([command("EXISTS", lease) for lease in leases])
    return [name for name, lives in zip(others, alive, strict=True) if not lives]


def queues_of(keys: Keys, identity: str) -> Request[list[str] | None]:
    """The queues that an incarnation has registered; None if it is not registered."""
    return one("HGET", keys.owners, identity, read=_queues)


def recover(keys: Keys, identity: str, queues: Sequence[str], most: int) -> Request[int]:
    """Return up to ``most`` jobs of a dead incarnation to their queues. Their number; -1 if it has a lease.

    Fewer if they are large: only 0 says that none are left. The first call removes it from ``processes``;
    the call that finds its lists empty deletes its registration, unless the key of a queue is not a list:
    then the jobs of that queue stay. Each job is counted in its entry (protocol/suspects.py), for which it
    gets a mark.
    """
    names = [keys.lease(identity), keys.tombstone(identity), keys.owners, keys.queues, keys.processes]
    names += (keys.work(identity), keys.workers(identity), keys.signals(identity), keys.suspects)
    for queue in queues:
        names += (keys.inprogress(queue, identity), keys.queue(queue))
    args = [identity, TOMBSTONE_TTL_S, most, ENTRIES_TTL_S, *queues]
    return script("recover", names, args, integer, keys.namespace)


def _queues(stored: bytes | None) -> list[str] | None:
    return None if stored is None else names_in(stored)
