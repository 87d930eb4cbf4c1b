"""Cancelling: cancels a batch with those inside it, or all jobs with a tag or of a class.

Run by clients and ``api``, never by the server. A batch is marked first, with a note for the servers, which
refuse its members from then on; then its waiting members are removed, page by page. So a cancellation that
ends in the middle can be repeated, and without that no member runs: the sweep renews the note while there are
any.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.flow.plans import CancelledBatch, CancelledNumbers
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store import queues
from pyworkers.store.calls import Request, Steps, script
from pyworkers.store.counters import STATS_TTL_S
from pyworkers.store.flow.batchviews import STATES, read_members
from pyworkers.store.flow.copies import filled_queues
from pyworkers.store.notes import note
from pyworkers.store.stats import read_in_progress
from pyworkers.store.transport.replies import integers

_ENDED, _UNKNOWN = -1, -2
"""The answers of the script for batches that are not cancelled."""
_PER_SCRIPT, _PER_SCAN = 100, 1000
# A job moves while places are read: from the retries into a queue, from a worker into the retries.
_ROUNDS = 3


class Wanted(NamedTuple):
    """Which jobs are cancelled: the jobs with a tag or of a class, or the members of cancelled batches."""

    kind: str
    """``tag``, ``class`` or ``batch``."""
    value: str = ""

    def matches(self, raw: bytes) -> str:
        """The id of a stored job with this tag or of this class; empty for any other."""
        try:
            job = envelope.decode(raw)
        except BadMessageError:
            return ""
        tags = job.get("tags")
        found: Sequence[Any] = (job.get("class"), job.get("wrapped"))
        if self.kind == "tag":
            found = tags if isinstance(tags, list) else ()
        jid = job.get("jid")
        return jid if isinstance(jid, str) and self.value in found else ""


def cancel_batch(keys: Keys, batch: str) -> Steps[CancelledBatch | None]:
    """Cancel a batch and those inside it, with their members. None for an unknown one.

    Reads all waiting jobs. It may be repeated; then it removes the members that an earlier call did not.
    """
    [left] = yield from _mark(keys, [batch], refuse=True)
    if left == _UNKNOWN:
        return None
    if left == _ENDED:
        return CancelledBatch(ended=True)
    inner = yield from _cancel_inner(keys, batch)
    removed = 0
    for _ in range(_ROUNDS):
        found = yield from _remove(keys, Wanted("batch"))
        removed += found
        [left] = yield from _mark(keys, [batch], refuse=True)
        if not found or left <= 0:
            break
    for some in portions(inner, _PER_SCRIPT):
        # Only now, when those that had no running member have ended: each note costs every server a little.
        yield from _mark(keys, some, refuse=True)
    [left] = yield from _mark(keys, [batch], refuse=True)
    return CancelledBatch(removed=removed, left=max(0, left))


def cancel_jobs(keys: Keys, wanted: Wanted) -> Steps[CancelledNumbers]:
    """Cancel all jobs with a tag or of a class, waiting or running. Reads all waiting jobs."""
    removed, running = 0, set[str]()
    for _ in range(_ROUNDS):
        found = yield from _remove(keys, wanted)
        new = (yield from _running(keys, wanted)) - running
        for jid in sorted(new):
            yield from note(keys, jid)
        running |= new
        # A run may have failed after the retries were read, and before its list was.
        found += yield from _remove_from(keys, wanted, [keys.retry])
        removed += found
        if not found and not new:
            break
    return CancelledNumbers(removed, len(running))


def _mark(keys: Keys, batches: Sequence[str], *, refuse: bool) -> Request[list[int]]:
    args = [int(refuse), *batches]
    return script("batches/cancel", [keys.queues, keys.cancelled], args, integers, keys.namespace)


def _cancel_inner(keys: Keys, batch: str) -> Steps[list[str]]:
    """Cancel the batches inside a cancelled one, at any depth. Returns their ids."""
    inner: dict[str, None] = {}
    left = [batch]
    while left:
        around = left.pop()
        for state in STATES:
            cursor = 0
            while True:
                cursor, members = yield from read_members(keys, around, state, cursor, _PER_SCAN)
                batches = [member.id for member in members if member.is_batch and member.id not in inner]
                for some in portions(batches, _PER_SCRIPT):
                    yield from _mark(keys, some, refuse=False)
                inner.update(dict.fromkeys(batches))
                left += batches
                if not cursor:
                    break
    return list(inner)


def _remove(keys: Keys, wanted: Wanted) -> Steps[int]:
    """Remove the wanted jobs that wait. Returns their number.

    The queues are listed and read last: a job that is due goes from a set into a queue, perhaps an empty one.
    """
    removed = yield from _remove_from(keys, wanted, [keys.retry, keys.schedule])
    return removed + (yield from _remove_from(keys, wanted, (yield from filled_queues(keys))))


def _remove_from(keys: Keys, wanted: Wanted, places: Iterable[str]) -> Steps[int]:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    others = [keys.cancelled, keys.stat("cancelled"), keys.stat("cancelled", day)]
    removed = 0
    for place in places:
        following = 0
        while following >= 0:
            args = [following, *wanted, STATS_TTL_S]
            following, number = yield from script(
                "removal/cancel", [place, *others], args, integers, keys.namespace
            )
            removed += number
    return removed


def _running(keys: Keys, wanted: Wanted) -> Steps[set[str]]:
    """The ids of the wanted jobs that servers of pyworkers have."""
    found: set[str] = set()
    for name in (yield from read_in_progress(keys)):
        held = queues.Entries(name)
        while not held.ended:
            page = yield from held.next_page()
            found |= {jid for job in page if (jid := wanted.matches(job.raw))}
    return found
