"""Jobs: takes jobs from a queue, settles their outcomes, and gives jobs back; each change is one script.

Run by the master. It moves opaque bytes: it never decodes a job, reads no clock, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from pyworkers.errors import PyworkersError
from pyworkers.protocol.effects import Effect, arguments, name_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.store import scripts
from pyworkers.store.calls import Call, one, script
from pyworkers.store.scripts import Commands
from pyworkers.store.sets import DEAD_MAX_AGE_S, DEAD_MAX_JOBS
from pyworkers.store.transport.connections import errors_translated, translate
from pyworkers.store.transport.replies import blobs, integer, integers, nonzero

GIVEN_BACK_AT_ONCE = 1000
"""The most jobs that one script gives back."""

Settlement = tuple[bytes, Outcome]
# For these fates the job is only removed: the script needs no more than its bytes.
_GONE = {fate: int(fate) for fate in (Fate.DONE, Fate.DISCARD, Fate.CANCELLED)}


class Exchange(NamedTuple):
    """The jobs taken, and which outcomes came too late (places in the batch, from 0).

    ``error`` is the reason why no more jobs could be taken; the outcomes are settled nevertheless.
    """

    jobs: list[bytes]
    stale: list[int]
    error: PyworkersError | None = None
    failed: Sequence[tuple[Effect, str]] = ()
    """The effects that Redis refused, each with its reason."""


class LeaseLostError(Exception):
    """The in-progress lists of this incarnation were recovered by a peer."""


class InProgress:
    """The in-progress list of one queue under one identity; it never changes.

    ``key`` is the list, and ``source`` the queue that its jobs come from. The names and the script of the
    exchange are prepared once, not for each exchange.
    """

    def __init__(self, keys: Keys, queue: str, identity: str) -> None:
        self.queue = queue
        self.identity = identity
        self.source = keys.queue(queue)
        self.key = keys.inprogress(queue, identity)
        self._keys = keys
        self._names = [self.source, self.key, keys.retry, keys.schedule, keys.dead]
        self._names += [keys.tombstone(identity), keys.owners]
        self._script = scripts.load("exchange")
        self._begin = ["EVALSHA", self._script.sha, len(self._names), *self._names]

    def under(self, identity: str) -> InProgress:
        """The list of the same queue under another identity."""
        return InProgress(self._keys, self.queue, identity)

    async def exchange(
        self, connection: Commands, settlements: Sequence[Settlement], wanted: int, now: float
    ) -> Exchange:
        """Settle outcomes and take up to ``wanted`` jobs. Safe to send again after a lost reply.

        The hot path: it bypasses ``calls`` to make fewer objects. Raises LeaseLostError when jobs were wanted
        and a peer has recovered the list, and PyworkersError.
        """
        args: list[Any] = [wanted, repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, self.identity, 0]
        effects: list[Effect] = []
        about: list[Any] = []
        for place, (raw, outcome) in enumerate(settlements, 1):
            # The outcome of most jobs, so it is checked first.
            if outcome is DONE:
                args += (0, raw)
                continue
            if outcome.fate in _GONE:
                args += (_GONE[outcome.fate], raw)
            else:
                args += (int(outcome.fate), raw, repr(outcome.at), outcome.payload)
            for effect in outcome.effects:
                effects.append(effect)
                about += (place, name_of(effect), *arguments(effect))
        args[5] = len(args)
        begin = self._begin
        if effects:
            names = [*self._names, *(key for effect in effects for key in effect.keys(self._keys))]
            begin = ["EVALSHA", self._script.sha, len(names), *names]
            args += about
        read = partial(_exchanged, len(settlements), wanted, effects)
        found: Exchange | None
        with errors_translated():
            try:
                found = await connection.execute_command(*begin, *args, read=read)
            except NoScriptError:
                found = await connection.execute_command(
                    "EVAL", self._script.text, *begin[2:], *args, read=read
                )
        if found is None:
            raise LeaseLostError(self.identity)
        return found

    def count(self) -> Call[int]:
        """How many jobs are in the list."""
        return one("LLEN", self.key, read=integer)

    def jobs(self) -> Call[list[bytes]]:
        """The bytes of all jobs in the list, newest first."""
        return one("LRANGE", self.key, 0, -1, read=blobs)

    def give_back(self, most: int = GIVEN_BACK_AT_ONCE) -> Call[int]:
        """Return up to ``most`` jobs to the end of the queue that is popped next.

        Returns their number; 0 if none are left, or if the key of the queue is not a list.
        """
        return script("give_back", [self.key, self.source, self._keys.queues], [self.queue, most], integer)


def hold_any(keys: Keys, queues: Sequence[str], identity: str) -> Call[bool]:
    """True if this identity has a job in an in-progress list of these queues; needs at least one queue."""
    names = [keys.inprogress(queue, identity) for queue in queues]
    return one("EXISTS", *names, read=nonzero)


def _exchanged(settled: int, wanted: int, effects: Sequence[Effect], reply: list[Any]) -> Exchange | None:
    """The result of the exchange script; None if it has done nothing, because the lease is lost."""
    if reply == []:
        return None
    stale, jobs, *rest = reply
    if len(blobs(jobs)) > max(0, wanted) or (integers(stale) and not 0 < min(stale) <= max(stale) <= settled):
        raise ValueError
    refusal = translate(ResponseError(rest[0].decode())) if rest and rest[0] else None
    failed = _failed(effects, *rest[1:]) if rest else ()
    return Exchange(jobs, [place - 1 for place in stale], refusal, failed)


def _failed(effects: Sequence[Effect], reply: Sequence[Any] = ()) -> list[tuple[Effect, str]]:
    """The failed effects of a reply, which holds their places and reasons in turn."""
    places, reasons = integers(list(reply[::2])), blobs(list(reply[1::2]))
    if places and not 0 < min(places) <= max(places) <= len(effects):
        raise ValueError
    pairs = zip(places, reasons, strict=True)
    return [(effects[place - 1], reason.decode(errors="replace")) for place, reason in pairs]
