"""Copies: the waiting copies of one job, by its id.

Used by ``cancel`` and ``finding``; never by the server. It changes nothing.
"""

from __future__ import annotations

from typing import Any

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.keys import Keys
from pyworkers.store import queues
from pyworkers.store.calls import Pages, Steps
from pyworkers.store.measures.look import present
from pyworkers.store.queues import Entries
from pyworkers.store.sets import Matches
from pyworkers.store.stats import read_owners


class Copies(Pages[bytes]):
    """The jobs with this id among those of ``pages``."""

    def __init__(self, pages: Pages[Any], jid: str) -> None:
        self._pages = pages
        self._jid = jid

    def next_page(self) -> Steps[list[bytes]]:
        found = yield from self._pages.next_page()
        self.ended = self._pages.ended
        return [raw for raw, _ in found if is_job(raw, self._jid)]


def in_set(zset: str, jid: str) -> Copies:
    """The copies in a sorted set."""
    return Copies(Matches(zset, jid if envelope.is_plain_id(jid) else ""), jid)


def in_queue(keys: Keys, queue: str, jid: str) -> Copies:
    """The copies that wait in a queue."""
    return Copies(Entries(keys, queue), jid)


def filled_queues(keys: Keys) -> Steps[list[str]]:
    """The queues in which jobs wait, sorted; also one that no producer has named in ``queues``."""
    known = yield from queues.known(keys)
    owners = yield from read_owners(keys)
    names = {keys.queue(name): name for name in sorted({*known}.union(*owners.values()))}
    return [names[key] for key in (yield from present(list(names)))]


def is_job(raw: bytes, jid: str) -> bool:
    """True for the job with that id. Most other jobs are excluded without decoding them."""
    if jid.encode() not in raw and b"\\" not in raw:
        return False
    try:
        return bool(envelope.decode(raw).get("jid") == jid)
    except BadMessageError:
        return False
