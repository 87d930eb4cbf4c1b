"""Ordered: takes the jobs of an ordered queue, one at a time over all servers; each change is one script.

Run by the master; views read with ``still_active`` and ``held_heads``. It moves opaque bytes, and settles
nothing: the exchange does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from hashlib import sha1
from typing import Any, NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Request, Steps, command, decoded, every, script
from pyworkers.store.measures.look import look
from pyworkers.store.transport.replies import nonzero


class TakeReply(NamedTuple):
    """The reply of ``take``: a word of take.lua, the fencing token, and what the word needs."""

    word: str
    fence: int
    wait_s: float
    active: str
    """The identity of the active server, for the words ``standby``, ``expired`` and ``other``."""
    raw: bytes
    """The job."""


def take(keys: Keys, queue: str, identity: str, known: str) -> Request[TakeReply]:
    """Take the next job if this server is active, or can become it. ``known``: the server believed active."""
    owner = known or identity
    names = [keys.ordered(queue), keys.queue(queue), keys.inprogress(queue, identity)]
    names += (keys.tombstone(identity), keys.owners, keys.paused)
    names += (keys.lease(owner), keys.inprogress(queue, owner))
    return script("ordered/take", names, [identity, known, queue], _take_reply, keys.namespace)


class HeldHead(NamedTuple):
    """A failed job at the head of an ordered queue, which waits for its time."""

    until: float
    """When it runs again, in epoch seconds."""
    raw: bytes
    """The job; empty if it is large."""


def release(keys: Keys, queue: str, identity: str) -> Request[bool]:
    """Give up the queue; False if this server was not active, or still has a job of it in progress."""
    names = [keys.ordered(queue), keys.inprogress(queue, identity)]
    return script("ordered/release", names, [identity], nonzero, keys.namespace)


def still_active(keys: Keys, holders: Mapping[str, str], leased: Collection[str]) -> Steps[dict[str, str]]:
    """The ``holders``, an identity by queue, that are active: the others have died.

    The rule is take.lua's: the lease exists, or a job in progress is not recovered yet. Nothing is read
    for an identity in ``leased``, whose lease is known to exist.
    """
    doubtful = [(queue, identity) for queue, identity in holders.items() if identity not in leased]
    replies = yield from every(
        [
            sent
            for queue, identity in doubtful
            for sent in (
                command("EXISTS", keys.lease(identity)),
                command("LLEN", keys.inprogress(queue, identity)),
            )
        ],
        Mode.LENIENT,
    )
    facts = zip(doubtful, replies[::2], replies[1::2], strict=True)
    died = {queue for (queue, _), lease, jobs in facts if not lease and not jobs}
    return {queue: identity for queue, identity in holders.items() if queue not in died}


def held_heads(keys: Keys, queues: Collection[str]) -> Steps[dict[str, HeldHead]]:
    """The failed jobs at the heads of these ordered queues. Nothing is read if there is no ordered queue."""
    # Not HMGET, for which the role ``read-only`` has no right.
    sent = [command("HGET", keys.ordered(queue), field) for queue in queues for field in ("until", "head")]
    waits = yield from every(sent, Mode.LENIENT)
    noted = {
        queue: (until, head)
        for queue, stored, head in zip(queues, waits[::2], waits[1::2], strict=True)
        if (until := until_of(stored)) is not None
    }
    heads = yield from look([(keys.queue(queue), "head") for queue in noted])
    # The job that the hash names may have been deleted since. A large one is taken for it.
    return {
        queue: HeldHead(until, raw)
        for (queue, (until, head)), raw in zip(noted.items(), heads, strict=True)
        if raw is not None and (not raw or is_head(raw, head))
    }


def until_of(stored: bytes | None) -> float | None:
    """When the head of an ordered queue runs again, in epoch seconds; None for what another program wrote."""
    return int(stored) / 1000 if stored and stored.isdigit() and len(stored) < 16 else None


def is_head(raw: bytes, head: bytes | None) -> bool:
    """True for the job that the hash of an ordered queue names."""
    return sha1(raw, usedforsecurity=False).hexdigest().encode() == head


def _take_reply(reply: Any) -> TakeReply:
    word, fence, ms, rest = reply
    if not (isinstance(fence, int) and isinstance(ms, int) and isinstance(rest, bytes)):
        raise ValueError
    job = word == b"job"
    return TakeReply(decoded(word), fence, ms / 1000, "" if job else decoded(rest), rest if job else b"")
