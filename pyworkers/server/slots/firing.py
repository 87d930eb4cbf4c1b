"""Firing: fires the due slots of cron entries: makes their jobs, or has a worker make them, and pushes them.

Runs in the master's event loop, for ``Cron``, which knows the entries. A script lets one server fire each
slot.

    due ──► made here ─────────────────────────────────► pushed
     │                                                     ▲
     └────► claimed ──► made by a worker (questions.py) ───┘
               ▲                 │ no answer: asked again
               └─────────────────┘
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyworkers import logs
from pyworkers.errors import BadArgumentError, DuplicateJobError, QueueFullError
from pyworkers.failpoints import hit
from pyworkers.protocol.cron import ON_TIME_S, CronEntry, due, job_of, next_slot, with_slot
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.envelope import new_jid
from pyworkers.server.slots.questions import (
    CLAIM_S,
    MakeSlots,
    NoAnswerError,
    Question,
    ask,
    needs_worker,
    pause_s,
)
from pyworkers.store import cron as slots
from pyworkers.store.cron import Firing
from pyworkers.store.store import Store

# The most slots of an entry for one request to a worker.
_AT_ONCE = 100
# While another server has a slot, it is looked at again after this time.
_CLAIMED_S = 1.0
# A slot's key expires this long after the grace, because the clocks of masters may differ.
_CLOCKS_DIFFER_S = 3600

log = logs.get_logger()


@dataclass
class WatchedEntry:
    """An entry, the moment up to which its slots are dealt with, and the next slot after it.

    ``definition`` is the text of a run-time entry in Redis, and empty for a declared entry.
    """

    entry: CronEntry
    definition: bytes = b""
    last: float | None = None
    next: float = -math.inf
    question: Question | None = None
    """The open request to a worker; until its end, no other slot of the entry is fired."""
    tries: int = 0
    """The requests without an answer since the last answer."""

    def begin_at(self, moment: float) -> None:
        """Note that the slots up to this moment are dealt with."""
        self.last = moment

    def move_on(self, now: float) -> None:
        """Note that all slots up to now are dealt with; wait for the next one."""
        self.last, self.next = now, next_slot(self.entry, now)

    def look_again(self, at: float = -math.inf) -> None:
        """Have the due slots computed again, at this time."""
        self.next = at

    def ask(self, question: Question) -> None:
        """Note that a worker makes the jobs of the due slots."""
        self.question, self.next = question, math.inf

    def answered(self) -> None:
        """Note that the question is answered; its slots are still due."""
        self.question, self.tries, self.next = None, 0, -math.inf

    def not_answered(self, now: float) -> None:
        """Note that no worker answered; wait longer and longer."""
        self.question, self.next = None, now + pause_s(self.tries)
        self.tries += 1


class Slots:
    """Fires slots. ``make_slots`` has a worker make jobs; ``answered`` is called when it has."""

    def __init__(
        self,
        store: Store,
        identity: Callable[[], str],
        rng: random.Random,
        make_slots: MakeSlots,
        answered: Callable[[], None],
    ) -> None:
        self._store = store
        self._keys = store.keys
        self._identity = identity
        self._rng = rng
        self._make_slots = make_slots
        self._answered = answered

    async def go_on(self, one: WatchedEntry, now: float, client_middleware: bool) -> bool:
        """Fire the due slots of an entry, or take the answer of the worker that makes their jobs.

        True if anything was sent to Redis. Raises PyworkersError; then the slots are still due.
        """
        if one.question is None:
            return await self._catch_up(one, now, client_middleware)
        try:
            made = one.question.read()
        except NoAnswerError as error:
            self._failed(one, one.question.slots[0], str(error))
            one.not_answered(now)
            return False
        if made is None:
            return False
        hit("slots_answered")
        for slot, (jobs, failure) in made:
            # Redis may have been away since: a slot that is out of its grace is not fired any more.
            if slot >= now - max(one.entry.grace_s, ON_TIME_S):
                await self._fire_made(one, slot, jobs, failure)
            one.begin_at(slot)
        one.answered()
        return await self._catch_up(one, now, client_middleware)

    async def _catch_up(self, one: WatchedEntry, now: float, client_middleware: bool) -> bool:
        missed = due(one.entry, one.last, now)
        if missed and needs_worker(one.entry, client_middleware):
            await self._ask(one, missed[:_AT_ONCE], now)
            return True
        for slot in missed:
            await self._fire(one, slot)
            one.begin_at(slot)
        one.move_on(now)
        return bool(missed)

    async def _ask(self, one: WatchedEntry, missed: Sequence[int], now: float) -> None:
        """Have a worker make the jobs of those slots that no other server deals with."""
        ours: list[int] = []
        for slot in missed:
            left_s = await self._store.arun(
                slots.claim(self._keys, self._identity(), self._firing(one, slot), CLAIM_S)
            )
            if left_s > 0:
                one.look_again(now + min(left_s, _CLAIMED_S))
                break
            if left_s == 0:
                ours.append(slot)
            elif not ours:
                one.begin_at(slot)
        else:
            one.look_again()
        if ours:
            try:
                one.ask(ask(self._make_slots, one.entry, ours, self._answered))
            except NoAnswerError as error:
                self._failed(one, ours[0], str(error))
                one.not_answered(now)

    async def _fire(self, one: WatchedEntry, slot: int) -> None:
        try:
            job = job_of(one.entry, slot, time.time(), new_jid(self._rng))
        except BadArgumentError as error:
            self._failed(one, slot, error.message)
        else:
            await self._push(one, slot, [job])

    async def _fire_made(self, one: WatchedEntry, slot: int, made: Sequence[PushedJob], error: str) -> None:
        """Push what a worker has made of a slot; a slot without a job is dealt with as well."""
        jobs = [with_slot(job, one.entry.name, slot) for job in made]
        if not await self._push(one, slot, jobs):
            return
        if error:
            self._failed(one, slot, error)
        elif not jobs:
            log.info("cron.dropped", name=one.entry.name, slot=slot, by="client middleware")

    def _failed(self, one: WatchedEntry, slot: int, error: str) -> None:
        log.error("cron.failed", name=one.entry.name, slot=slot, error=error)

    def _firing(self, one: WatchedEntry, slot: int, jobs: Sequence[PushedJob] = ()) -> Firing:
        life_s = math.ceil(one.entry.grace_s) + _CLOCKS_DIFFER_S
        return Firing(one.entry.name, slot, jobs, life_s, one.definition)

    async def _push(self, one: WatchedEntry, slot: int, jobs: Sequence[PushedJob]) -> bool:
        """Push the jobs of a slot. False if the slot was dealt with before."""
        name = one.entry.name
        try:
            others = await self._store.arun(slots.fire(self._keys, self._firing(one, slot, jobs)))
        except (QueueFullError, DuplicateJobError) as error:
            self._failed(one, slot, error.message)
            return True
        if others is None:
            return False
        hit("cron_after_slot")
        for job in jobs:
            if other := others.get(job.jid):
                log.info("cron.duplicate", name=name, slot=slot, queue=job.queue, jid=other)
            else:
                log.info("cron.fired", name=name, slot=slot, queue=job.queue, jid=job.jid)
        return True
