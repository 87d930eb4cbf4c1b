"""Limits as people see them: their use, page by page, who holds their slots, and the release of one slot.

Run by ``api``, never by the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from typing import Any, NamedTuple

from pyworkers.protocol.envelope import jid_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import LimitStats, period_of, queue_of
from pyworkers.store.calls import Command, Mode, Request, Steps, command, decoded, every, script
from pyworkers.store.heartbeat import clock
from pyworkers.store.queues import first_jobs
from pyworkers.store.transport.replies import nonzero

_PAGE = 200
_ABOUT = re.compile(rb"([0-9]{1,9}) ([0-9]{1,12}(?:\.[0-9]{1,20})?)")
_Declared = tuple[str, int, float]
"""Key, most, window of a limit."""


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A job that holds a slot of a limit; of a rate, a start in its period."""

    member: str
    """Names the slot, for ``release``; empty for a job of a queue with ``max_running``, which has none."""
    identity: str
    """The server."""
    jid: str
    """Empty if a server of an earlier version has granted the slot."""
    since: float | None
    """When it got the slot, or started, in epoch seconds."""

    def as_dict(self) -> dict[str, Any]:
        """The holder as JSON values."""
        names = {name: _valid(value) for name, value in asdict(self).items() if name != "since"}
        return {**names, "since": self.since}


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit, and who holds its slots: the first ones, of a rate the latest starts."""

    stats: LimitStats
    holders: tuple[LimitHolder, ...]

    def as_dict(self) -> dict[str, Any]:
        """The limit for JSON."""
        return {**self.stats.as_dict(), "holders": [holder.as_dict() for holder in self.holders]}


class LimitPage(NamedTuple):
    """Some limits by key; ``cursor`` leads to the next page, 0 at the end; ``total`` is the number of all."""

    cursor: int
    total: int
    limits: list[LimitStats]


def uses(keys: Keys) -> Steps[list[LimitStats]]:
    """All limits in use, by key."""
    [stored] = yield from every([command("HGETALL", keys.limits)], Mode.LENIENT)
    return (yield from _uses(keys, stored or {}))


def read_limit_page(keys: Keys, cursor: int, count: int) -> Steps[LimitPage]:
    """Read limits from the cursor of an earlier page, or 0.

    About ``count``; up to 500 limits are on one page, because Redis returns a small hash at once.
    """
    commands = [command("HLEN", keys.limits), command("HSCAN", keys.limits, cursor, "COUNT", count)]
    total, page = yield from every(commands, Mode.LENIENT)
    following, stored = page or (0, {})
    return LimitPage(int(following), total or 0, (yield from _uses(keys, stored)))


def read_limit(keys: Keys, key: str, most: int = 100) -> Steps[LimitView | None]:
    """Read one limit with up to ``most`` holders; None if it is not in use."""
    [about] = yield from every([command("HGET", keys.limits, key)], Mode.LENIENT)
    stored = {} if about is None else {key.encode(errors="surrogateescape"): about}
    found = yield from _uses(keys, stored)
    if not found:
        return None
    [stats] = found
    queue = queue_of(key)
    reading = _running(keys, queue, most) if queue and not stats.per_s else _members(keys, stats, most)
    return LimitView(stats, tuple((yield from reading)))


def release(keys: Keys, key: str, member: str) -> Request[bool]:
    """Free one slot, and call the job that has waited longest; False if it is free already.

    The job that holds it continues.
    """
    names = [keys.limit(key), keys.limit_waiting(key), keys.schedule, keys.queues]
    return script("limits/free", names, [member], nonzero, keys.namespace)


def _uses(keys: Keys, stored: Mapping[bytes, bytes]) -> Steps[list[LimitStats]]:
    found: list[LimitStats] = []
    now = yield from clock()
    owners = yield from _owners(keys)
    declared = sorted(_declared(stored))
    for start in range(0, len(declared), _PAGE):
        page = declared[start : start + _PAGE]
        commands = [_counts(keys, limit, now, owners) for limit in page]
        counts = iter((yield from every([*chain(*commands)], Mode.LENIENT)))
        for (key, most, window_s), asked in zip(page, commands, strict=True):
            waiting, *used = (count or 0 for count in islice(counts, len(asked)))
            found.append(LimitStats(key, most, period_of(window_s), sum(used), waiting))
    return found


def _owners(keys: Keys) -> Steps[list[str]]:
    [names] = yield from every([command("HKEYS", keys.owners)], Mode.LENIENT)
    return [decoded(name) for name in names or ()]


def _members(keys: Keys, stats: LimitStats, most: int) -> Steps[list[LimitHolder]]:
    """The members of its sorted set."""
    order = ("REV",) if stats.per_s else ()
    asked = command("ZRANGE", keys.limit(stats.key), 0, most - 1, *order, "WITHSCORES")
    [found] = yield from every([asked], Mode.LENIENT)
    pairs = zip((found or ())[::2], (found or ())[1::2], strict=True)
    return [_holder(decoded(member), float(since)) for member, since in pairs]


def _holder(member: str, since: float) -> LimitHolder:
    identity, _, run = member.partition("|")
    return LimitHolder(member, identity, run.partition(" ")[2], since)


def _running(keys: Keys, queue: str, most: int) -> Steps[list[LimitHolder]]:
    """The jobs in the in-progress lists of a queue."""
    owners = {keys.inprogress(queue, owner): owner for owner in (yield from _owners(keys))}
    found = yield from first_jobs(owners, most)
    return [LimitHolder("", owners[key], jid_of(raw), None) for key, raw in found]


def _declared(stored: Mapping[bytes, bytes]) -> Iterator[_Declared]:
    for key, about in stored.items():
        if found := _ABOUT.fullmatch(about):
            yield decoded(key), int(found[1]), float(found[2])


def _counts(keys: Keys, limit: _Declared, now: float, owners: Sequence[str]) -> list[Command]:
    """The commands that count those that wait, and those that use a limit; of the latter, the sum counts."""
    key, _, window_s = limit
    queue = queue_of(key)
    waiting = command("LLEN", keys.queue(queue)) if queue else command("ZCARD", keys.limit_waiting(key))
    if queue and not window_s:
        return [waiting, *(command("LLEN", keys.inprogress(queue, owner)) for owner in owners)]
    since = f"({now - window_s!r}" if window_s else "-inf"
    return [waiting, command("ZCOUNT", keys.limit(key), since, "+inf")]


def _valid(text: str) -> str:
    """A name as text for JSON."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
