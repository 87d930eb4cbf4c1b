"""Jobs: takes jobs from queues, settles their outcomes, and gives jobs back; each change is one step.

Run by the master. It moves opaque bytes: it never decodes a job, reads no clock, and decides nothing. The
exchange settles and takes jobs by a script. ``Waiter`` waits for the next job of an empty queue. Large jobs
are settled and taken by transactions (``watch``), while nothing else changes their list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.effects import Effect, NoteStart, arguments, name_of
from pyworkers.protocol.extract import Extract
from pyworkers.protocol.flow.batch import counted
from pyworkers.protocol.keys import Keys, undivided
from pyworkers.protocol.limits import QueueLimit, queue_key, running_key, ttl_of, window_of
from pyworkers.protocol.outcome import DONE, Fate, Report
from pyworkers.store import scripts
from pyworkers.store.calls import Request, arun_one, one, script
from pyworkers.store.scripts import Commands
from pyworkers.store.sets import DEAD_MAX_AGE_S, DEAD_MAX_JOBS
from pyworkers.store.transport.connections import CONNECT_TIMEOUT_S, errors_translated, translate
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import blobs, integer, integers, maybe_blob, nonzero, read
from pyworkers.store.transport.wire import Wire, time_limit

GIVEN_BACK_AT_ONCE = 1000
"""The most jobs that one script gives back."""

_NOTHING: Mapping[str, PyworkersError] = MappingProxyType({})
_NO_EXTRACTS: Mapping[int, Extract] = MappingProxyType({})
# For these fates the job is only removed, or only stays: the script needs no more than its bytes.
_GONE = frozenset((Fate.DONE, Fate.DISCARD, Fate.CANCELLED, Fate.EXPIRED, Fate.NOTE))
# The code of an outcome is its fate, plus 10 if an extract represents the job, plus 20 times the place of its
# queue.
_CODES_PER_QUEUE, _BY_EXTRACT = 20, 10


class Settlement:
    """A job whose outcome Redis has to apply. ``raw`` are its bytes, as they are in the in-progress list."""

    report: Report

    def __init__(self, queue: str, raw: bytes, report: Report) -> None:
        self.queue = queue
        self.raw = raw
        self.report = report


class Exchange(NamedTuple):
    """The jobs taken, and which outcomes came too late (places in the batch, from 0)."""

    jobs: list[tuple[str, list[bytes]]]
    """The jobs taken from each queue, in the order in which they were taken."""
    stale: list[int]
    error: PyworkersError | None = None
    """The reason why no more jobs could be taken; the outcomes are settled nevertheless."""
    refused: Mapping[str, PyworkersError] = _NOTHING
    """The queues on whose keys Redis refuses commands, each with the reason; the others are not concerned."""
    left: Sequence[int] = ()
    """The outcomes that are not settled: for such a reason, or because an extract was not enough."""
    failed: Sequence[tuple[str, Effect, str]] = ()
    """The effects that Redis refused, each with the queue of its job and the reason."""


class Taken(NamedTuple):
    """The jobs taken from a queue with limits. ``after_s``: when more may start; None: any time.

    ``full``: when a job that runs has ended. ``starts``: for each job the effect that notes its start, if the
    queue has a rate.
    """

    jobs: list[bytes]
    after_s: float | None
    full: bool
    starts: Sequence[Effect] = ()


class LeaseLostError(Exception):
    """The in-progress lists of this incarnation were recovered by a peer."""


class InProgress:
    """The in-progress lists of a group of queues under one identity; it never changes.

    The names and the script of the exchange are prepared once, not for each exchange.
    """

    def __init__(self, keys: Keys, queues: Sequence[str], identity: str) -> None:
        self.queues = queues
        self.identity = identity
        self.keys = keys
        self._names = [keys.retry, keys.schedule, keys.dead, keys.tombstone(identity), keys.owners]
        for queue in queues:
            self._names += (keys.queue(queue), keys.inprogress(queue, identity))
        self._names += undivided(keys.namespace)
        self._prefix = keys.namespace
        self._script = scripts.load("exchange")
        self._begin = ["EVALSHA", self._script.sha, len(self._names), *self._names]
        self._codes = {queue: place * _CODES_PER_QUEUE for place, queue in enumerate(queues, 1)}
        self._places = {queue: place for place, queue in enumerate(queues, 1)}

    def under(self, identity: str) -> InProgress:
        """The lists of the same queues under another identity."""
        return InProgress(self.keys, self.queues, identity)

    def source(self, queue: str) -> str:
        """The key of a queue."""
        return self.keys.queue(queue)

    def key(self, queue: str) -> str:
        """The key of the list of a queue."""
        return self.keys.inprogress(queue, self.identity)

    async def exchange(
        self,
        connection: Commands,
        settlements: Sequence[Settlement],
        wanted: int,
        order: Sequence[str],
        now: float,
        extracts: Mapping[int, Extract] = _NO_EXTRACTS,
    ) -> Exchange:
        """Settle outcomes and take up to ``wanted`` jobs from the queues ``order``, the first one first.

        ``extracts`` represent the bytes of large jobs, by their places in ``settlements``, from 0.
        Safe to send again after a lost reply. The hot path: it bypasses ``calls`` to make fewer objects.
        Raises LeaseLostError when jobs were wanted and a peer has recovered the lists, and PyworkersError.
        """
        args: list[Any] = [wanted, repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, self.identity]
        args += (len(self._names), 0, len(order), *[self._places[queue] for queue in order])
        effects: list[tuple[str, Effect]] = []
        about: list[Any] = []
        codes = self._codes
        for place, job in enumerate(settlements, 1):
            queue, raw, outcome = job.queue, job.raw, job.report.outcome
            # The outcomes of most jobs, so they are checked first.
            if not extracts:
                if outcome is DONE:
                    args += (codes[queue], raw)
                    continue
                if outcome.member is not None and not outcome.effects:
                    args += (f"{codes[queue]} {outcome.member.batch} {outcome.member.jid}", raw)
                    continue
            args += self._described(job, extracts.get(place - 1))
            for effect in outcome.effects:
                effects.append((queue, effect))
                about += (place, name_of(effect), *arguments(effect))
        args[6] = len(args)
        begin = self._begin
        if effects:
            names = [*self._names, *(key for _, effect in effects for key in effect.keys(self.keys))]
            begin = ["EVALSHA", self._script.sha, len(names), *names]
            args += about
        args.append(self._prefix)
        read = partial(self._exchanged, settlements, wanted, order, effects)
        return await self._called(connection, begin, args, read)

    def _described(self, job: Settlement, found_by: Extract | None) -> Iterator[Any]:
        """The arguments for the outcome of any job, without its effects."""
        outcome, code = job.report.outcome, self._codes[job.queue] + job.report.outcome.fate
        if found_by is not None:
            code += _BY_EXTRACT
        member = outcome.member
        yield code if member is None else f"{code} {member.batch} {member.jid}"
        yield from (job.raw,) if found_by is None else found_by
        if outcome.fate not in _GONE:
            yield from (repr(outcome.at), outcome.payload)

    async def _called(
        self,
        connection: Commands,
        begin: Sequence[Any],
        args: Sequence[Any],
        read: Callable[[Any], Exchange | None],
    ) -> Exchange:
        """The reply of the exchange script, which is loaded if Redis does not know it."""
        found: Exchange | None
        with errors_translated():
            try:
                found = await connection.execute_command(*begin, *args, read=read)
            except NoScriptError:
                text = self._script.text
                found = await connection.execute_command("EVAL", text, *begin[2:], *args, read=read)
        if found is None:
            raise LeaseLostError(self.identity)
        return found

    def _exchanged(
        self,
        settlements: Sequence[Settlement],
        wanted: int,
        order: Sequence[str],
        effects: Sequence[tuple[str, Effect]],
        reply: list[Any],
    ) -> Exchange | None:
        """The result of the exchange script; None if it has done nothing, because the lease is lost."""
        if reply == []:
            return None
        stale, taken, *rest = reply
        if len(taken) > len(order) or sum(len(blobs(jobs)) for jobs in taken) > max(0, wanted):
            raise ValueError
        jobs = list(zip(order, taken, strict=False))
        late = _places(stale, len(settlements))
        if not rest:
            return Exchange(jobs, late)
        error, refused, left, failed, uncounted = rest
        return Exchange(
            jobs,
            late,
            _refusal(error) if error else None,
            {self.queues[place]: _refusal(reason) for place, reason in _pairs(refused, len(self.queues))},
            _places(left, len(settlements)),
            [
                *((*effects[place], why) for place, why in _reasons(failed, len(effects))),
                *(
                    (*_count_of(settlements[place]), why)
                    for place, why in _reasons(uncounted, len(settlements))
                ),
            ],
        )

    async def take(
        self, connection: Commands, queue: str, limit: QueueLimit, wanted: int, name: str
    ) -> Taken:
        """Take up to ``wanted`` jobs of a queue with limits, but none that may not start now.

        ``name`` is new in each call. Raises LeaseLostError when a peer has recovered the lists, and
        PyworkersError.
        """
        keys, key = self.keys, queue_key(queue)
        names = [keys.queue(queue), self.key(queue), keys.tombstone(self.identity), keys.owners]
        names += (keys.limit(key), keys.limits)
        window_s = window_of(limit.per_s)
        args = [
            self.identity,
            wanted,
            name,
            limit.rate,
            repr(window_s),
            limit.max_running,
            key,
            running_key(queue),
        ]
        found = await arun_one(connection, script("limits/take", names, args, _taken, keys.namespace))
        if found is None:
            raise LeaseLostError(self.identity)
        if limit.rate:
            members = (f"{name}:{place}" for place in range(1, len(found.jobs) + 1))
            return found._replace(starts=[NoteStart(key, name, ttl_of(window_s)) for name in members])
        return found

    def count(self, queue: str) -> Request[int]:
        """How many jobs are in the list of a queue."""
        return one("LLEN", self.key(queue), read=integer)

    def jobs(self, queue: str) -> Request[list[bytes]]:
        """The bytes of all jobs in the list of a queue, newest first."""
        return one("LRANGE", self.key(queue), 0, -1, read=blobs)

    def give_back(self, queue: str, most: int = GIVEN_BACK_AT_ONCE) -> Request[int]:
        """Return up to ``most`` jobs of a queue to its end that is popped next; fewer if they are large.

        Returns their number; 0 if none are left, or if the key of the queue is not a list.
        """
        names = [self.key(queue), self.source(queue), self.keys.queues]
        return script("give_back", names, [queue, most], integer, self.keys.namespace)


def hold_any(lists: Sequence[str]) -> Request[bool]:
    """True if one of these in-progress lists, at least one, holds a job."""
    return one("EXISTS", *lists, read=nonzero)


def _taken(reply: Any) -> Taken | None:
    """The result of limits/take.lua; None if it has done nothing, because the lease is lost."""
    if reply == []:
        return None
    jobs, after, full = reply
    return Taken(blobs(jobs), float(after) if after else None, bool(full))


def _refusal(reason: bytes) -> PyworkersError:
    return translate(ResponseError(reason.decode(errors="replace")))


def _count_of(job: Settlement) -> tuple[str, Effect]:
    """The queue and the effect of an outcome that counts a member."""
    if (member := job.report.outcome.member) is None:
        raise ValueError
    return job.queue, counted(job.raw, member)


def _reasons(reply: list[Any], number: int) -> Iterable[tuple[int, str]]:
    """As ``_pairs``, with the reasons as text."""
    return ((place, reason.decode(errors="replace")) for place, reason in _pairs(reply, number))


def _places(reply: list[Any], number: int) -> list[int]:
    """Places counted from 0, from a list of places among ``number`` that are counted from 1."""
    if integers(reply) and not 0 < min(reply) <= max(reply) <= number:
        raise ValueError
    return [place - 1 for place in reply]


def _pairs(reply: list[Any], number: int) -> Iterable[tuple[int, bytes]]:
    """Places, as ``_places``, and reasons, which a list holds in turn."""
    return zip(_places(reply[::2], number), blobs(reply[1::2]), strict=True)


# How long Redis blocks at a time: an idle queue costs 60 / 20 = 3 commands a minute.
LONGEST_BLOCK_S = 20.0
# Redis still serves the blocked connection of a master that is stopped (SIGSTOP, a suspended machine). The
# block must end before the lease, or a job would go to an owner whose lists were recovered already. A lease
# that is renewed has 5/6 of its time left at least (server/lease.py).
_PART_OF_LEASE = 2 / 3
# A reply later than this after the block means that the connection is half open.
PATIENCE_S = 2
_BRIEF_S = 0.1


class Waiter:
    """The blocking move of one job from a queue into an in-progress list. ``unblock`` ends it safely.

    It has its own connection, because the connection is busy while it waits. It sends nothing twice: a
    repeated BRPOPLPUSH after a lost reply would take a second job.
    """

    def __init__(self, config: RedisConfig, lease_s: float = 30.0) -> None:
        self._block_s = min(LONGEST_BLOCK_S, lease_s * _PART_OF_LEASE)
        self._link = Link(config, self._block_s + PATIENCE_S)
        # The link's timeout is for one command; this one is for the whole move, with the connect.
        self._longest_s = CONNECT_TIMEOUT_S + self._block_s + 2 * PATIENCE_S
        self.blocked = False
        self._moves = 0

    @property
    def under_way(self) -> int:
        """The number of the move whose reply is awaited; 0 if none is."""
        return self._moves if self.blocked else 0

    async def wait(
        self, source: str, target: str, taken: Callable[[bytes], None], briefly: bool = False
    ) -> None:
        """Move the next job, call ``taken`` with it, and return; return without a job when the block expires.

        ``source`` and ``target`` are the keys of the queue and of the list; if they are equal, the job stays
        where it is. ``briefly``: the block expires after a tenth of a second. A move that neither returns nor
        fails before its timeout is ended, and its connection is replaced: a link closes when the wait for a
        reply is cancelled. Raises PyworkersError.
        """
        with errors_translated():
            async with time_limit(self._longest_s):
                await self._move(source, target, taken, _BRIEF_S if briefly else self._block_s)

    async def _move(self, source: str, target: str, taken: Callable[[bytes], None], block_s: float) -> None:
        def on_reply(raw: bytes | None) -> None:
            if raw is not None:
                taken(raw)

        self._moves += 1
        self.blocked = True
        try:
            if source == target:
                # From the end that is popped next to the same end.
                command = ("BLMOVE", source, target, "RIGHT", "RIGHT", block_s)
                await self._link.execute_command(*command, on_reply=on_reply, read=maybe_blob)
                return
            await self._link.execute_command("BRPOPLPUSH", source, target, block_s, on_reply=on_reply)
        finally:
            self.blocked = False

    async def unblock(self, control: Commands) -> None:
        """Make a running ``wait`` return at once. ``control`` is another connection, for the command."""
        if self.blocked and self._link.client_id is not None:
            # After a refusal (ACL) or an outage, the wait still ends by its own timeout.
            with suppress(PyworkersError), errors_translated():
                await control.execute_command("CLIENT", "UNBLOCK", self._link.client_id, read=integer)

    def hang_up(self) -> None:
        """Close the connection once no move is under way; the next move opens another."""
        self._link.hang_up()

    def drop_connection(self) -> None:
        """End a wait with an error."""
        self._link.drop_connection()

    async def connect_to(self, config: RedisConfig) -> None:
        """End a wait with an error, and wait at this Redis from now on."""
        await self._link.connect_to(config)

    async def close(self) -> None:
        """Close the connection."""
        await self._link.aclose()


class WatchedList(NamedTuple):
    """A list that holds exactly the jobs that this server knows: see ``watch``.

    A job that passes through a script is copied several times: 1.5 ms for one of 1 MB, three times as long as
    the move itself. A transaction does without, because of what WATCH proves: nothing has changed the list
    since it held the jobs that this server knows, in an order that it knows; no peer has recovered it; and
    the owner is registered. EXEC ends the watch, so nothing is done late or twice.
    """

    queue: str
    wire: Wire
    """The connection that watches it."""


class WatchedExchange(NamedTuple):
    """The result of an exchange with a watched list."""

    found: Exchange
    watched: WatchedList | None
    """The list as it is afterwards; None if it may hold other jobs."""


async def watch(lists: InProgress, link: Link, queue: str, held: int) -> WatchedList | None:
    """Watch the list of a queue; None unless it holds ``held`` jobs and this server may take others.

    Raises PyworkersError.
    """
    with errors_translated():
        # An earlier watch may have failed already, and a new one would not change that.
        wire, replies = await link.send_together([("UNWATCH",), *_watching(lists, queue)])
    return WatchedList(queue, wire) if _is_watched(replies[1:], held) else None


async def exchange_watched(
    lists: InProgress, link: Link, watched: WatchedList, places: Sequence[int], wanted: int, held: int
) -> WatchedExchange | None:
    """Remove the jobs at these indexes of a watched list of ``held`` jobs, and take up to ``wanted``.

    None if nothing was done: the list may have changed, or Redis refuses it. Raises PyworkersError.
    """
    if watched.wire.closed or watched.wire.is_former:
        return None
    queue, key = watched.queue, lists.key(watched.queue)
    steps: list[tuple[Any, ...]] = [("LSET", key, place, b"") for place in places]
    # A list of large jobs holds no empty one.
    steps.append(("LREM", key, 0, b""))
    steps += [("RPOPLPUSH", lists.source(queue), key)] * wanted
    commands = [("MULTI",), *steps, ("EXEC",), *_watching(lists, queue)]
    with errors_translated():
        _, replies = await link.send_together(commands, watched.wire)
        done = replies[len(steps) + 1]
        if done is None or isinstance(done, Exception):
            return None
        found = read("EXEC", partial(_moved, queue, len(places), wanted), done)
    held += len(found.jobs[0][1]) - len(places)
    still = _is_watched(replies[len(steps) + 2 :], held)
    return WatchedExchange(found, WatchedList(queue, watched.wire) if still else None)


def _watching(lists: InProgress, queue: str) -> list[tuple[Any, ...]]:
    """The commands that watch a list, and then look at it."""
    key, tombstone, owners = lists.key(queue), lists.keys.tombstone(lists.identity), lists.keys.owners
    return [
        ("WATCH", key, tombstone, owners),
        ("LLEN", key),
        ("EXISTS", tombstone),
        ("HEXISTS", owners, lists.identity),
    ]


def _is_watched(replies: list[Any], held: int) -> bool:
    return replies == [b"OK", held, 0, 1]


def _moved(queue: str, removed: int, wanted: int, reply: list[Any]) -> Exchange:
    """The result of a transaction."""
    if len(reply) != removed + 1 + wanted or reply[removed] != removed:
        raise ValueError
    taken = [raw for raw in reply[removed + 1 :] if raw is not None]
    refusals = [raw for raw in taken if isinstance(raw, ResponseError)]
    if refusals:
        return Exchange([(queue, [])], [], refused={queue: translate(refusals[0])})
    return Exchange([(queue, blobs(taken))], [])
