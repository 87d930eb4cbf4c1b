"""Cancel: removes a waiting job, or asks the server of a running one to end it.

Used by ``client`` and the command line; never by the server. It first writes a note, which every server
reads within a second, then searches all places where the job may wait. The note stops a job that moves
during the search; the search finds a job that would still wait after the note has expired.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled
from pyworkers.store.calls import Mode, Request, Steps, command, every, one, script
from pyworkers.store.counters import STATS_TTL_S
from pyworkers.store.flow import removal
from pyworkers.store.flow.copies import CopiesInLists, filled_queues, in_set, reported
from pyworkers.store.notes import note
from pyworkers.store.processes.reading import Processes
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.stats import read_in_progress, read_owners
from pyworkers.store.transport.replies import integer
from pyworkers.store.values import encodable
from pyworkers.store.views.servers import read_servers

# Sidekiq's job/iterable.rb: since 7.3 a job may be iterable; its state expires after 30 days.
_ITERATES_SINCE, _ITERATION_TTL_S = (7, 3), 30 * 86_400


def cancel(keys: Keys, jid: str) -> Steps[Cancelled]:
    """Cancel a job. Reads all waiting jobs, so it takes longer the more there are.

    Raises BadArgumentError for an empty id.
    """
    check_id(jid)
    # Before the note: servers read it at once, and a job that runs now may then be gone from every list.
    ran = yield from _is_running(keys, jid)
    yield from note(keys, jid)
    # Twice, because during a search the job may move from a place not yet searched to one already searched.
    for _ in range(2):
        if (yield from _revoke_waiting(keys, jid)):
            return Cancelled.REMOVED
        if ran or (yield from _is_running(keys, jid)):
            return Cancelled.RUNNING
        if (yield from _cancel_elsewhere(keys, jid)) is Cancelled.ELSEWHERE:
            return Cancelled.ELSEWHERE
    return Cancelled.UNKNOWN


def cancel_running(keys: Keys, jid: str, identity: str, queue: str) -> Steps[Cancelled]:
    """As ``cancel``, for a job of ``queue`` that runs on the server ``identity``: searches nothing else.

    UNKNOWN if it does not run there any more; then nothing is changed. Raises BadArgumentError for an invalid
    id.
    """
    check_id(jid)
    [is_ours] = yield from every([command("HEXISTS", keys.owners, identity, read=bool)], Mode.LENIENT)
    if not is_ours:
        servers = yield from read_servers(keys, [identity])
        return (yield from _end_elsewhere(keys, jid, {view.about.identity: view.about for view in servers}))
    if (yield from CopiesInLists([keys.inprogress(queue, identity)], jid).first()) is None:
        return Cancelled.UNKNOWN
    yield from note(keys, jid)
    return Cancelled.RUNNING


def check_id(jid: str) -> None:
    """Raise BadArgumentError for a value that cannot be the id of a job; other programs choose any text."""
    if not encodable(jid):
        raise BadArgumentError(f"a jid is a text that is not empty, not {jid!r}")


def _revoke_waiting(keys: Keys, jid: str) -> Steps[int]:
    """Remove all waiting copies of the job. Returns how many this call removed."""
    removed = 0
    for zset in (keys.schedule, keys.retry):
        copies = in_set(zset, jid)
        while not copies.ended:
            for raw in (yield from copies.next_page()):
                removed += yield from _revoke(keys, "zset", zset, jid, raw)
    waiting = CopiesInLists((yield from filled_queues(keys)), jid)
    while not waiting.ended:
        for key, raw in (yield from waiting.next_page()):
            removed += yield from _revoke(keys, "list", key, jid, raw)
    return removed


def _is_running(keys: Keys, jid: str) -> Steps[bool]:
    lists = yield from read_in_progress(keys)
    return (yield from CopiesInLists(lists, jid).first()) is not None


def _cancel_elsewhere(keys: Keys, jid: str) -> Steps[Cancelled]:
    ours = yield from read_owners(keys)
    servers = yield from Processes(keys).rest()
    others = {about.identity: about for about in servers if about.identity not in ours}
    return (yield from _end_elsewhere(keys, jid, others))


def _end_elsewhere(keys: Keys, jid: str, others: Mapping[str, ProcessView]) -> Steps[Cancelled]:
    """ELSEWHERE if one of these servers reports the job as running; it is asked to end the job."""
    work = yield from reported(keys, list(others), jid)
    if work is None:
        return Cancelled.UNKNOWN
    yield from _end_iteration(keys, jid, others[work.identity].version)
    return Cancelled.ELSEWHERE


def _end_iteration(keys: Keys, jid: str, version: str) -> Steps[None]:
    """Cancel as Sidekiq's ``cancel!`` does, if the server may be a Sidekiq that reads the key (by its
    version, or because the key exists): no other program would remove the key.
    """
    key = keys.iteration(jid)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal() and len(part) < 10)
    if numbers >= _ITERATES_SINCE or (yield from one("EXISTS", key, read=integer)):
        noted = command("HSETNX", key, "cancelled", int(time.time()))
        yield from every([noted, command("EXPIRE", key, _ITERATION_TTL_S)], Mode.TRANSACTION)


def _revoke(keys: Keys, kind: str, key: str, jid: str, raw: bytes) -> Request[int]:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    names = [key, keys.cancelled, keys.stat("cancelled"), keys.stat("cancelled", day)]
    effects = removal.ends([raw], Ending.CANCELLED, time.time())
    more_names, more_args = removal.written(keys, effects)
    args = [kind, jid.encode(), raw, STATS_TTL_S, *more_args]
    return script("removal/revoke", [*names, *more_names], args, integer, keys.namespace)
