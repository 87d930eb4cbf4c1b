"""Sweep: finds locks and members of batches whose job is gone, and releases them.

Run by one master at a time; the scripts compare, and it reads no jobs. A job that ends, or that pyworkers
removes, releases what it holds; Sidekiq's Web UI and other programs delete jobs without that. A job is gone
if two sweeps in succession find it in no place, and neither does a last look at the ends of all queues and
sets, in the step that releases. A job in ``dead`` ends as one that pyworkers moved there, as soon as it is
seen. Each call is one page, for the caller to rest after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pyworkers.protocol.flow.rules import MARKS, effects_of_buried
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys, literal
from pyworkers.protocol.portions import portions
from pyworkers.store import queues
from pyworkers.store.calls import Mode, Steps, command, decoded, every, one, script
from pyworkers.store.flow.removal import written
from pyworkers.store.measures.look import present
from pyworkers.store.processes.reading import Processes
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.search import scan
from pyworkers.store.stats import read_owners
from pyworkers.store.transport.replies import begins_with, blob, blobs, integer, integers

LIFE_S = 20.0
"""A sweep without a call for this time has ended."""
MOST = 200_000
"""The jobs that one sweep looks for, which take 150 bytes of Redis each. Of more, it looks for a share."""
_PER_CALL = 100
_RELEASED_AT_ONCE = 200
# Those who wait ask again at least each half a minute.
_ASK_LIFE_S = 600
_MOST_RESTARTS = 3


class Swept(NamedTuple):
    """The result of a sweep."""

    held: int
    """The locks and members that were checked, or would be in sweeps for the other shares."""
    locks: int = 0
    """The locks that were released."""
    members: int = 0
    """The members that were counted out."""
    tracked: int = 0
    """The tracked jobs whose end is unknown, and was awaited."""
    dead: int = 0
    """The jobs that another program had moved to ``dead``, and that were settled."""
    errors: tuple[str, ...] = ()
    """Why some of it failed: a key has the wrong type."""


def begin(keys: Keys, token: str) -> Steps[float | None]:
    """Take the turn to sweep.

    Returns None if the caller has it, 0 if there is nothing to check, otherwise the seconds until it is free.
    """
    names = [keys.sweep("turn"), keys.sweep("missing"), keys.locks, keys.batches, keys.dead, keys.awaited]
    left = yield from script("sweep/begin", names, [token, int(LIFE_S * 1000)], integer, keys.namespace)
    return None if left < 0 else left / 1000


def end(keys: Keys, token: str, pause_s: float) -> Steps[None]:
    """Return the turn: the next sweep begins after ``pause_s`` or later. Nothing happens without the turn."""
    args = [token, int(LIFE_S * 1000), max(1, int(pause_s * 1000))]
    yield from script("sweep/end", [keys.sweep("turn"), keys.sweep("missing")], args, bool, keys.namespace)


def sweep(keys: Keys, token: str, shares: int = 1) -> Steps[Swept]:
    """Release what is held for jobs that are gone. ``token``, hexadecimal and random, has the turn."""
    run = _Sweep(keys, token, shares)
    try:
        return (yield from run.steps())
    except _LostTurnError:
        return Swept(0)


class _LostTurnError(Exception):
    """Another sweep has begun, because this one was too slow."""


class _Sweep:
    def __init__(self, keys: Keys, token: str, shares: int) -> None:
        self._keys = keys
        self._token = token
        self._share = [MOST, shares, int(token, 16) % shares]
        self._missing = 0
        self._held = 0
        self._dead = 0
        self._errors: list[str] = []

    def steps(self) -> Steps[Swept]:
        keys = self._keys
        yield from self._settle_dead()
        yield from self._note("locks", [keys.locks])
        yield from self._note("awaited", [keys.awaited], _ASK_LIFE_S)
        ids = [decoded(name) for name in (yield from one("ZRANGE", keys.batches, 0, -1, read=blobs))]
        yield from self._note_members(ids)
        if not (yield from self._find_in_batches(ids)):
            return self._swept()
        lists = yield from self._find()
        gone = yield from self._missed_twice()
        if not gone:
            return self._swept()
        lists += yield from self._scan_for_lists()
        for name in lists:
            yield from self._find_in(name)
        return (yield from self._release(gone, lists))

    def _swept(self, locks: int = 0, members: int = 0, tracked: int = 0) -> Swept:
        return Swept(self._held, locks, members, tracked, self._dead, tuple(self._errors))

    def _settle_dead(self) -> Steps[None]:
        """Apply the effects of the end to each job in ``dead`` that still waits for them.

        Another program has moved it there, or a server that could not read it.
        """
        keys = self._keys
        cursor = b"0"
        while True:
            cursor, *found = yield from self._call("buried", [keys.dead], [cursor, *MARKS])
            for some in portions(list(zip(found[::3], found[1::3], found[2::3], strict=True)), _PER_CALL):
                yield from self._settle(some)
            if cursor == b"0":
                return

    def _settle(self, found: Sequence[tuple[bytes, bytes, bytes]]) -> Steps[None]:
        ended = ((raw, effects_of_buried(facts, float(score))) for score, raw, facts in found)
        settled = [(raw, effects) for raw, effects in ended if effects]
        names, args = written(
            self._keys, ((place, effect) for place, (_, some) in enumerate(settled, 1) for effect in some)
        )
        args = [3 + len(settled), *(raw for raw, _ in settled), *args]
        number, *failed = yield from self._call("settle", [self._keys.dead, *names], args)
        self._dead += number
        self._errors += (reason.decode(errors="replace") for reason in failed)

    def _note(self, name: str, names: Sequence[str], *args: int) -> Steps[None]:
        """Note what one key holds, page by page."""
        cursor = b"0"
        while True:
            cursor, seen = yield from self._call(name, names, [cursor, *self._share, *args])
            self._held += seen
            if cursor == b"0":
                return

    def _note_members(self, ids: Sequence[str]) -> Steps[None]:
        large: list[bytes] = []
        done = 0
        while done < len(ids):
            args = [*self._share, "", *ids[done : done + _PER_CALL]]
            number, seen, _, *more = yield from self._call("members", [self._keys.queues], args)
            done += number
            self._held += seen
            large += more
        for batch, part in zip(large[::2], large[1::2], strict=True):
            cursor = b"0"
            while True:
                args = [*self._share, cursor + b" " + part, batch]
                _, seen, cursor = yield from self._call("members", [self._keys.queues], args)
                self._held += seen
                if cursor == b"0":
                    break

    def _find_in_batches(self, ids: Sequence[str]) -> Steps[int]:
        """Strike off the jobs that wait in batches. Returns the number of those that are missing."""
        missing = yield from one("HLEN", self._keys.sweep("missing"), read=integer)
        for some in portions(ids, _PER_CALL) if missing else ():
            missing = yield from self._call("waiting", [], some)
        self._missing = missing
        return missing

    def _find(self) -> Steps[list[str]]:
        """Strike off the jobs that are somewhere. Returns the lists of other programs' servers, and of moves.

        Jobs move on from the sets to the queues and the in-progress lists, and from there back into the sets,
        which are therefore read twice.
        """
        keys = self._keys
        sets = [keys.schedule, keys.retry, keys.goretry, keys.dead]
        for name in sets:
            yield from self._find_in(name)
        owners = yield from read_owners(keys)
        waiting = {*(yield from queues.known(keys))}.union(*owners.values())
        yield from self._find_in_lists(map(keys.queue, sorted(waiting)))
        owners = yield from read_owners(keys)
        served = [(name, owner) for owner, names in owners.items() for name in names]
        yield from self._find_in_lists(keys.inprogress(name, owner) for name, owner in served)
        foreign = yield from self._foreign()
        [moves] = yield from every([command("HKEYS", keys.moves)], Mode.LENIENT)
        lists = [keys.moving(decoded(name)) for name in moves or ()]
        lists += [keys.queue(name) for view in foreign for _, name in view.lists]
        running = [(keys.work(view.identity), keys.workers(view.identity)) for view in foreign]
        for name in (*lists, *chain.from_iterable(running), *sets):
            yield from self._find_in(name)
        return lists

    def _foreign(self) -> Steps[list[ProcessView]]:
        """Other programs' servers: Sidekiq's show the jobs that they run, go-workers2's their lists."""
        found = yield from Processes(self._keys).rest()
        return [view for view in found if view.look is None]

    def _find_in_lists(self, names: Iterable[str]) -> Steps[None]:
        """As ``_find_in``, for those lists that are not empty: most are."""
        for name in (yield from present(list(names))):
            yield from self._find_in(name)

    def _find_in(self, name: str) -> Steps[None]:
        """Strike off the jobs in one place."""
        restarts = 0
        place = b"0"
        last: list[Any] = []
        while self._missing and place:
            self._missing, place, *last = yield from self._call("find", [name], [place, *last])
            if place == b"lost":
                # Each of the jobs read last has left, most often with all that were before them.
                place = b"0" if restarts < _MOST_RESTARTS else b""
                restarts += 1

    def _missed_twice(self) -> Steps[list[bytes]]:
        gone: dict[bytes, None] = {}
        cursor = b"0"
        while self._missing:
            cursor, *found = yield from self._call("missed", [], [cursor])
            gone |= dict.fromkeys(found)
            if cursor == b"0":
                break
        return list(gone)

    def _scan_for_lists(self) -> Steps[list[str]]:
        """The in-progress lists that no server reports: go-workers' lists, among the names of all keys."""
        pattern = f"{literal(self._keys.queue(''))}*{INPROGRESS_SUFFIX}"
        _, found = yield from scan(pattern)
        return found

    def _release(self, gone: Sequence[bytes], lists: Sequence[str]) -> Steps[Swept]:
        keys = self._keys
        names = [keys.queues, keys.owners, keys.schedule, keys.retry, keys.dead, keys.goretry, *lists]
        locks = members = tracked = 0
        for some in portions(gone, _RELEASED_AT_ONCE):
            released, counted, given_up, *failed = yield from self._call("release", names, some)
            locks += released
            members += counted
            tracked += given_up
            self._errors += (reason.decode(errors="replace") for reason in failed)
        return self._swept(locks, members, tracked)

    def _call(self, name: str, names: Sequence[str], args: Sequence[Any]) -> Steps[Any]:
        keys = [self._keys.sweep("turn"), self._keys.sweep("missing"), *names]
        args = [self._token, int(LIFE_S * 1000), *args]
        reply = yield from script(f"sweep/{name}", keys, args, _READERS[name], self._keys.namespace)
        if reply is None:
            raise _LostTurnError
        return reply


# The readers of the replies, which are None without the turn.


def _missing(reply: Any) -> int | None:
    return None if reply is None else integer(reply)


def _found(reply: Any) -> list[Any] | None:
    if reply is None:
        return None
    missing, place, *last = reply
    # Distances and jobs in turn.
    return [integer(missing), blob(place), *chain(*zip(integers(last[::2]), blobs(last[1::2]), strict=True))]


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "buried": begins_with(bytes, rest=bytes),
    "settle": begins_with(int, rest=bytes),
    "locks": begins_with(bytes, int, rest=int),
    "awaited": begins_with(bytes, int, rest=int),
    "members": begins_with(int, int, bytes, rest=bytes),
    "waiting": _missing,
    "find": _found,
    "missed": begins_with(bytes, rest=bytes),
    "release": begins_with(int, int, int, rest=bytes),
}
