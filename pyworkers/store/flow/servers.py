"""Servers: finds servers on this Redis that leave out what this version does for jobs.

Read by the master and by ``pyworkers check``; changes nothing. Servers of pyworkers declare in
their heartbeat what the jobs of their queues ask for (features.py); otherwise locks and waiting jobs show it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.flow import features, unique
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, decoded, every, one
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes.reading import Processes, live
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.transport.replies import maybe_blob
from pyworkers.store.values import decoded_json

_SOME = 100
# The jobs of a queue that are read: the next ones and, where other programs serve it, the newest.
_SAMPLE = 10
_LARGE = 16 * 1024
# The first job at an end of a queue, and the range of the others.
_NEXT, _NEWEST = (-1, -_SAMPLE, -2), (0, 1, _SAMPLE - 1)
_FEATURES = frozenset(features.BROKEN)

Uses = Mapping[str, Collection[str]]
"""The features of jobs by queue."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A server of another program, with the queues whose jobs it breaks: the features for each."""

    view: ProcessView
    uses: Mapping[str, Sequence[str]]

    @property
    def program(self) -> str:
        """The program, as its heartbeat shows it."""
        if self.view.lists:
            return "go-workers2"
        return f"Sidekiq {self.view.version}" if self.view.version else "Sidekiq, or alike"

    @property
    def features(self) -> list[str]:
        """All features that it breaks."""
        return sorted({name for names in self.uses.values() for name in names})


@dataclass(frozen=True, slots=True)
class Uninformed:
    """Live servers that leave out effects."""

    older: list[ProcessView]
    """Of an earlier version of pyworkers."""
    foreign: list[Foreign]
    """Of other programs, if they serve a queue whose jobs ask for what only servers of pyworkers do."""
    current: frozenset[str] = frozenset()
    """Servers of pyworkers that leave out nothing; it stays so, because each start has its own identity."""


def uninformed(keys: Keys, own: Uses | None = None, current: Collection[str] = ()) -> Steps[Uninformed]:
    """The live servers that leave out effects: live by Redis' clock, for all of them write their own time.

    ``own`` are the features of an application that perhaps no server runs; ``current`` is from an earlier
    result, whose servers are not read again.
    """
    now = yield from clock()
    processes = Processes(keys, current)
    found = [view for view in (yield from processes.rest()) if not view.silent(now)]
    older = [view for view in found if view.is_older]
    others = [view for view in found if view.look is None]
    ours = processes.left_out.union(view.identity for view in found if view.look is not None)
    current = ours.difference(view.identity for view in older)
    if not others:
        return Uninformed(older, [], frozenset(current))
    uses = yield from _declared(keys, sorted(ours))
    for queue, names in (own or {}).items():
        uses[queue].update(names)
    for queue in (yield from _queues_of_locks(keys)):
        uses[queue].add(features.UNIQUE)
    yield from _add_waiting(keys, uses, {queue for view in others for queue in view.queues})
    foreign = [Foreign(view, _shared(view, uses)) for view in others]
    return Uninformed(older, [one for one in foreign if one.uses], frozenset(current))


def _shared(view: ProcessView, found: Uses) -> dict[str, list[str]]:
    return {queue: sorted(found[queue]) for queue in view.queues if found.get(queue)}


def _declared(keys: Keys, ours: Sequence[str]) -> Steps[defaultdict[str, set[str]]]:
    """What servers of pyworkers declare."""
    reads = [command("HGET", keys.process(identity), "features", read=maybe_blob) for identity in ours]
    stored = yield from every(reads, Mode.LENIENT)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for text in stored:
        declared = decoded_json(text, dict) if isinstance(text, bytes) else None
        for queue, names in (declared or {}).items():
            if isinstance(names, list):
                found[queue].update(name for name in names if isinstance(name, str) and name in _FEATURES)
    return found


def _add_waiting(keys: Keys, found: defaultdict[str, set[str]], queues: set[str]) -> Steps[None]:
    """Add what some waiting jobs ask for. The key of a batch does not name the queues of its members."""
    for queue, job in (yield from _sample(keys, queues, _NEXT, _NEWEST)):
        found[queue] |= features.of_envelope(job)


# What another program's feature needs from the program that runs the job, by the field of its envelope.
FIELDS_OF_OTHERS: Mapping[str, str] = {
    "bid": "a batch of Sidekiq Pro never completes if pyworkers runs a member",
    "encrypt": "pyworkers cannot open what Sidekiq Enterprise encrypts: the job is dead",
    "lock_digest": "a lock of sidekiq-unique-jobs without lock_ttl never ends if pyworkers runs the job",
    "unique_token": "a lock of Exq ends with its TTL alone if pyworkers runs the job",
}


def fields_of_others(keys: Keys) -> Steps[dict[str, set[str]]]:
    """By field of ``FIELDS_OF_OTHERS``, the queues of live servers of pyworkers in which such jobs wait."""
    servers = yield from live(keys)
    queues = {queue for view in servers if view.look is not None for queue in view.queues}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for queue, job in (yield from _sample(keys, queues, _NEXT)):
        for field in FIELDS_OF_OTHERS:
            if job.get(field) and not (field == "lock_digest" and job.get("lock_ttl")):
                found[field].add(queue)
    return dict(found)


def _sample(
    keys: Keys, queues: Collection[str], *ends: tuple[int, int, int]
) -> Steps[list[tuple[str, dict[str, Any]]]]:
    """Some jobs at these ends of queues, each with its queue.

    Large ones are left out, because a server decodes them in its event loop. Where the first one is large, no
    other one is read: they may be as large.
    """
    wanted = [(name, *end) for name in sorted(queues) for end in ends]
    reads = [command("LINDEX", keys.queue(name), first) for name, first, *_ in wanted]
    firsts = yield from every(reads, Mode.LENIENT)
    small = [(*one, raw) for one, raw in zip(wanted, firsts, strict=True) if raw and len(raw) <= _LARGE]
    reads = [command("LRANGE", keys.queue(name), begin, end) for name, _, begin, end, _ in small]
    others = yield from every(reads, Mode.LENIENT)
    pairs = zip(small, others, strict=True)
    return [(name, job) for (name, *_, raw), raws in pairs for job in _jobs([raw, *(raws or ())])]


def _jobs(raws: Sequence[bytes]) -> Iterator[dict[str, Any]]:
    for raw in raws:
        if len(raw) <= _LARGE:
            with suppress(BadMessageError):
                yield envelope.decode(raw)


def _queues_of_locks(keys: Keys) -> Steps[set[str]]:
    """The queues of some locks; a long name is shortened there."""
    found = yield from one("SSCAN", keys.locks, 0, "COUNT", _SOME, read=lambda page: page[1])
    return {unique.parts_of(decoded(name).removeprefix(unique.PREFIX))[1] for name in found} - {""}
