"""Foreign: finds the in-progress lists of go-workers, go-workers2 and Sidekiq Pro, and empties dead ones.

Used by ``pyworkers adopt`` and ``pyworkers check``; never by the server. No key names these lists, so they
are searched among the names of all keys.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys, literal
from pyworkers.protocol.portions import PageSize, portions
from pyworkers.store import queues
from pyworkers.store.calls import Mode, Steps, command, every, one, script
from pyworkers.store.processes.reading import live
from pyworkers.store.search import scan
from pyworkers.store.stats import claim_of
from pyworkers.store.transport.replies import blobs, integer

GO, PRO = "go-workers", "sidekiq-pro"
PROGRAMS = (GO, "go-workers2", PRO)
_PRO = "sq|"
# The identities of pyworkers, whose lists look like lists of go-workers.
_OURS = re.compile(r":\d+:[0-9a-f]{12}:inprogress\Z")
_PER_SCRIPT, _PAGE = 100, 1000


@dataclass(frozen=True, slots=True)
class ForeignList:
    """An in-progress list of another program: of one queue and one process."""

    key: str
    queue: str
    program: str
    process: str


@dataclass(frozen=True, slots=True)
class LeftList:
    """What a process of another program has in its lists; the process may live."""

    program: str
    process: str
    jobs: int
    queues: Sequence[str]


def named(keys: Keys, program: str, process: str, queue: str) -> ForeignList:
    """The list of a process for a queue."""
    key = f"{_PRO}{process}|{queue}" if program == PRO else f"{queue}:{process}{INPROGRESS_SUFFIX}"
    return ForeignList(keys.queue(key), queue, program, process)


def lists_of(keys: Keys, program: str, process: str) -> Steps[list[ForeignList]]:
    """The lists of a process, by the name of their queue. Searches the names of all keys."""
    begin, end = keys.queue(""), f":{process}{INPROGRESS_SUFFIX}"
    if program == PRO:
        begin, end = keys.queue(f"{_PRO}{process}|"), ""
    _, found = yield from scan(f"{literal(begin)}*{literal(end)}")
    names = sorted(name[len(begin) : len(name) - len(end)] for name in found)
    return [named(keys, program, process, queue) for queue in names if queue]


def is_ours(keys: Keys, process: str) -> Steps[bool]:
    """True for the identity of a server of pyworkers, whose jobs its peers recover."""
    listed = yield from one("HEXISTS", keys.owners, process, read=bool)
    return listed or _OURS.search(f":{process}{INPROGRESS_SUFFIX}") is not None


def lives(keys: Keys, lists: Sequence[ForeignList], process: str) -> Steps[str]:
    """The process, or the one that has one of these lists, if its heartbeat is recent; else empty.

    go-workers, and the releases of go-workers2, have no heartbeat.
    """
    names = {item.key for item in lists}
    for view in (yield from live(keys)):
        theirs = {keys.queue(name) for _, name in view.lists}
        if view.identity == process or names & theirs:
            return view.identity
    return ""


def jobs_in(lists: Sequence[ForeignList]) -> Steps[list[list[bytes]]]:
    """The jobs in each list, the newest first. Raises StoreError for a key that is not a list."""
    found = []
    for item in lists:
        jobs: list[bytes] = []
        size = PageSize(_PAGE)
        while page := (yield from one("LRANGE", item.key, len(jobs), len(jobs) + size.jobs - 1, read=blobs)):
            size.note(page)
            jobs += page
        found.append(jobs)
    return found


def adopt(keys: Keys, item: ForeignList, jobs: Sequence[bytes]) -> Steps[int]:
    """Return these jobs of a list to their queue, each in one step. Returns how many this call moved.

    Raises StoreError if the key of the queue is not a list; then its jobs stay.
    """
    names, moved = [item.key, keys.queue(item.queue), keys.queues], 0
    for portion in portions(jobs, _PER_SCRIPT, len):
        number = yield from script("adopt", names, [item.queue, *portion], integer, keys.namespace)
        if number < 0:
            raise StoreError(f"{names[1]} is a key of another type; the jobs stay in {item.key}")
        moved += number
    return moved


def left(keys: Keys, budget_s: float = 1.0) -> Steps[list[LeftList]]:
    """The processes of other programs that have jobs in their lists, and no recent heartbeat.

    The search among all keys ends after ``budget_s`` seconds. Who may not search finds none.
    """
    deadline = time.monotonic() + budget_s
    pattern = f"{literal(keys.queue(''))}*"
    try:
        _, found = yield from scan(pattern, goes_on=lambda: time.monotonic() < deadline)
    except StoreError as error:
        if error.code != "NOPERM":
            raise
        return []
    known = set((yield from queues.known(keys)))
    lists = list(_foreign(keys, sorted(found), known))
    sizes = yield from every([command("LLEN", item.key) for item in lists], Mode.LENIENT)
    filled = [(item, size) for item, size in zip(lists, sizes, strict=True) if size]
    by_process = []
    for (program, process), items in groupby(sorted(filled, key=_process), key=_process):
        pairs = list(items)
        if not (yield from lives(keys, [item for item, _ in pairs], process)):
            jobs = sum(size for _, size in pairs)
            by_process.append(LeftList(program, process, jobs, [item.queue for item, _ in pairs]))
    return by_process


def _process(pair: tuple[ForeignList, int]) -> tuple[str, str]:
    return pair[0].program, pair[0].process


def _foreign(keys: Keys, found: Iterable[str], known: Collection[str]) -> Iterator[ForeignList]:
    for name in found:
        rest = name.removeprefix(keys.queue(""))
        if rest.startswith(_PRO):
            process, _, queue = rest.removeprefix(_PRO).rpartition("|")
            if process and queue:
                yield ForeignList(name, queue, PRO, process)
        elif rest.endswith(INPROGRESS_SUFFIX) and not _OURS.search(rest):
            claim = claim_of(rest, known)
            if claim.owner:
                yield ForeignList(name, claim.queue, GO, claim.owner)
