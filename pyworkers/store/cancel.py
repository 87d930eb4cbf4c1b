"""Cancelling: removes a waiting job, or asks the server of a running one to end it.

Used by ``client`` and the command line; never by the server. First comes a note, which every server sees
within a second, then a search of all places where the job may wait. So a job that moves meanwhile is caught
by the note, and one that waits for longer than notes live is found by the search.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from enum import StrEnum

from pyworkers.errors import BadArgumentError, BadMessageError
from pyworkers.protocol import envelope
from pyworkers.store import processes, scripts
from pyworkers.store.admin import Admin
from pyworkers.store.paging import entries
from pyworkers.store.reader import owners
from pyworkers.store.store import NOTE_TTL_S, STATS_TTL_S
from pyworkers.store.transport.connections import errors_translated

# Sidekiq's job/iterable.rb: since 7.3 a job may be iterable, and its state lives for 30 days.
_ITERATES_SINCE, _ITERATION_TTL_S = (7, 3), 30 * 86_400
_PLAIN = re.compile("[A-Za-z0-9_.:-]+")


class Cancelled(StrEnum):
    """The result of a cancellation."""

    REMOVED = "removed"
    """It waited, in a queue or for its time, and is gone."""
    RUNNING = "running"
    """It runs. Its server asks it to end, and kills it two seconds later."""
    ELSEWHERE = "elsewhere"
    """A server of another kind runs it. Sidekiq ends it within seconds if it is iterable; else it goes on."""
    UNKNOWN = "unknown"
    """It is nowhere; should it turn up within a day, it will not start."""


def cancel(admin: Admin, jid: str) -> Cancelled:
    """Cancel a job. Reads all waiting jobs, so that it takes longer the more there are.

    Raises BadArgumentError for an empty id, RedisUnavailableError and StoreError.
    """
    if not isinstance(jid, str) or not jid:
        raise BadArgumentError(f"a jid is a text that is not empty, not {jid!r}")
    # Servers see the note at once: soon after, a job that runs now may be nowhere.
    ran = _is_running(admin, jid)
    with errors_translated():
        scripts.load("mark").call(admin.redis, [admin.keys.cancelled], [jid.encode(), NOTE_TTL_S])
    # It may move against the direction of the search, once.
    for _ in range(2):
        removed = [_revoke(admin, kind, key, jid, raw) for kind, key, raw in _waiting(admin, jid)]
        if any(removed):
            return Cancelled.REMOVED
        if ran or _is_running(admin, jid):
            return Cancelled.RUNNING
        if _is_elsewhere(admin, jid):
            return Cancelled.ELSEWHERE
    return Cancelled.UNKNOWN


def _waiting(admin: Admin, jid: str) -> Iterator[tuple[str, str, bytes]]:
    """All copies of the job that wait: the kind of place, its key, the bytes."""
    for key in (admin.keys.schedule, admin.keys.retry):
        pattern = f"*{jid}*" if _PLAIN.fullmatch(jid) else "*"
        with errors_translated():
            for raw, _ in admin.redis.zscan_iter(key, pattern, count=1000):
                if _is(raw, jid):
                    yield "zset", key, raw
    names = {name.decode(errors="surrogateescape") for name in admin.run("SMEMBERS", admin.keys.queues)}
    for queue in sorted(names.union(*owners(admin).values())):
        key = admin.keys.queue(queue)
        for raw, _ in entries(admin.redis, key):
            if _is(raw, jid):
                yield "list", key, raw


def _is_running(admin: Admin, jid: str) -> bool:
    keys = admin.keys
    lists = [keys.inprogress(queue, owner) for owner, queues in owners(admin).items() for queue in queues]
    found = admin.look([("LRANGE", key, 0, -1) for key in lists])
    return any(_is(raw, jid) for raws in found for raw in raws or ())


def _is_elsewhere(admin: Admin, jid: str) -> bool:
    """True if a server of another kind reports the job as running; that server is asked to end it."""
    ours = owners(admin)
    others = {about.identity: about for about in processes.processes(admin) if about.identity not in ours}
    for work in processes.works(admin, list(others)):
        if _is(work.payload, jid):
            _end_iteration(admin, jid, others[work.identity].version)
            return True
    return False


def _end_iteration(admin: Admin, jid: str, version: str) -> None:
    """Cancel as Sidekiq's ``cancel!`` does, where that may help: no other program would remove the key."""
    key = admin.keys.iteration(jid)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers >= _ITERATES_SINCE or admin.run("EXISTS", key):
        noted = ("HSETNX", key, "cancelled", int(time.time()))
        admin.run_all([noted, ("EXPIRE", key, _ITERATION_TTL_S)], at_once=True)


def _revoke(admin: Admin, kind: str, key: str, jid: str, raw: bytes) -> bool:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    keys = [key, admin.keys.cancelled, admin.keys.stat("cancelled"), admin.keys.stat("cancelled", day)]
    names = [name.encode(errors="surrogateescape") for name in keys]
    with errors_translated():
        return bool(scripts.load("revoke").call(admin.redis, names, [kind, jid.encode(), raw, STATS_TTL_S]))


def _is(raw: bytes, jid: str) -> bool:
    """True for the job of that id. Most bytes are seen not to be it without decoding them."""
    if jid.encode() not in raw and b"\\" not in raw:
        return False
    try:
        return bool(envelope.decode(raw).get("jid") == jid)
    except BadMessageError:
        return False
