"""Copies: the copies of one job, by its id, in sets, in queues and in in-progress lists.

Used by ``cancel``, ``finding`` and ``browse``; never by the server. It changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store import plain, queues
from pyworkers.store.calls import Pages, Steps, script
from pyworkers.store.measures.look import present
from pyworkers.store.processes.reading import Works
from pyworkers.store.processes.views import WorkView
from pyworkers.store.queues import Entries
from pyworkers.store.sets import Matches
from pyworkers.store.stats import read_owners
from pyworkers.store.transport.replies import blob, integer

# Of one call: some milliseconds of Redis' time.
_MOST_LISTS, _MOST_BYTES = 500, 4 << 20


class Copies(Pages[bytes]):
    """The jobs with this id among the jobs of ``pages``."""

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


class CopiesInLists(Pages[tuple[str, bytes]]):
    """The copies in these lists, each with the key of its list. One script searches many short lists.

    A list of another type counts as empty.
    """

    def __init__(self, lists: Iterable[str], jid: str) -> None:
        self._jid = jid
        self._text = jid.encode() if envelope.is_plain_id(jid) else b""
        self._lists = deque(lists)
        self._longer: deque[tuple[str, Copies]] = deque()
        """Lists too long for the script: each is read by itself, from its beginning."""
        self.ended = not self._lists

    def next_page(self) -> Steps[list[tuple[str, bytes]]]:
        found = yield from (self._read_longer() if self._longer else self._seek())
        self.ended = not self._longer and not self._lists
        return found

    def _read_longer(self) -> Steps[list[tuple[str, bytes]]]:
        key, copies = self._longer[0]
        found = yield from copies.next_page()
        if copies.ended:
            self._longer.popleft()
        return [(key, raw) for raw in found]

    def _seek(self) -> Steps[list[tuple[str, bytes]]]:
        keys = list(islice(self._lists, _MOST_LISTS))
        reading = script("browse/seek", keys, [self._text, _MOST_BYTES], _found)
        read, longer, found = yield from plain.or_plain(reading, partial(plain.seek, keys, self._text))
        for _ in range(read):
            self._lists.popleft()
        self._longer.extend((key, Copies(Entries(key), self._jid)) for key in (keys[at - 1] for at in longer))
        matches = ((place, raw) for place, raw in portions(found, 2) if place not in longer)
        return [(keys[place - 1], raw) for place, raw in matches if is_job(raw, self._jid)]


def reported(keys: Keys, identities: Sequence[str], jid: str) -> Steps[WorkView | None]:
    """A running job, as one of these servers reports it."""
    works = Works(keys, identities)
    while not works.ended:
        for work in (yield from works.next_page()):
            if is_job(work.payload, jid):
                return work
    return None


def filled_queues(keys: Keys) -> Steps[dict[str, str]]:
    """The names of the queues in which jobs wait, by key, sorted; also one that is not in ``queues``."""
    known = yield from queues.known(keys)
    owners = yield from read_owners(keys)
    names = {keys.queue(name): name for name in sorted({*known}.union(*owners.values()))}
    return {key: names[key] for key in (yield from present(list(names)))}


def is_job(raw: bytes, jid: str) -> bool:
    """True for the job with that id. Most other jobs are excluded without decoding them."""
    if jid.encode() not in raw and b"\\" not in raw:
        return False
    try:
        return bool(envelope.decode(raw).get("jid") == jid)
    except BadMessageError:
        return False


def _found(reply: list[Any]) -> list[Any]:
    read, longer, found = reply
    for place, raw in portions(found, 2):
        integer(place), blob(raw)
    return [integer(read), list(map(integer, longer)), found]
