"""Moving: a queue whose jobs move to another Redis, once each, also if the move is killed and begun again.

Used by the command line and by users' programs. Servers may run jobs of the queue meanwhile, in both.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyworkers.api.target import Where, admin_of
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.failpoints import hit
from pyworkers.protocol import moving as rules
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.moving import AWAITED, PLACES, Candidate, MoveState, ParkedJob
from pyworkers.protocol.portions import PageSize
from pyworkers.store import moving, queues, sets
from pyworkers.store.moving import Portion, ReadJobs
from pyworkers.store.sets import PAGE, MembersByScore

# A pass steps over jobs while servers take others, which stay, from the same end.
_MOST_PASSES = 3


@dataclass(slots=True)
class MoveCounts:
    """What a move has done: the jobs moved by place, jobs of an earlier move included, and the jobs left."""

    moved: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(PLACES, 0)))
    left: Counter[str] = field(default_factory=Counter)
    """Why jobs stay → how many."""
    odd: int = 0
    """The entries in the list of parked jobs that were none, and are in the queue now as they were."""

    @property
    def total(self) -> int:
        """The number of jobs moved."""
        return self.moved.total()

    def without_odd(self, parked: Sequence[ParkedJob]) -> list[ParkedJob]:
        """The jobs among parked entries; counts the others."""
        jobs = [job for job in parked if not job.odd]
        self.odd += len(parked) - len(jobs)
        return jobs

    def as_dict(self) -> dict[str, Any]:
        """The numbers for JSON."""
        return {"moved": dict(self.moved), "left": dict(self.left)}


class GivenBack(NamedTuple):
    """What ``QueueMove.back`` has done with the parked jobs."""

    back: int
    """How many are in the source again."""
    arrived: int
    """How many had arrived in the target, and stay there."""
    odd: int = 0
    """As in ``MoveCounts``."""


class QueueMove:
    """The move of the jobs of a queue from one Redis to another: of those that wait, in their order, and of
    those in ``schedule`` and ``retry``.

    Jobs with locks, members of batches and steps of chains stay. All methods raise RedisUnavailableError and
    StoreError. ``name`` of the target is shown if the move is cut off.
    """

    def __init__(self, queue: str, source: Where, target: Where, *, name: str = "") -> None:
        """Raises ConfigError, and ValueError for an invalid name of a queue."""
        check_queue_name(queue)
        self.queue = queue
        self.counts = MoveCounts()
        self._source, self._target = admin_of(source), admin_of(target)
        self._from, self._to = self._source.keys, self._target.keys
        self._name = name
        # The last portion known to have arrived. A failover of the source may lose its number there, and
        # the target ignores another portion with that number.
        self._arrived = 0

    @property
    def size(self) -> int:
        """How many jobs a move looks at: all of ``schedule`` and ``retry`` are searched."""
        sizes = (
            queues.size(self._from, self.queue),
            sets.size(self._from.schedule),
            sets.size(self._from.retry),
        )
        return sum(map(self._source.run, sizes))

    def check(self) -> None:
        """Raise PyworkersError for a queue that cannot move: an ordered one."""
        for admin in (self._source, self._target):
            if admin.run(moving.is_ordered(admin.keys, self.queue)):
                hint = "let its servers run its jobs; new jobs go where the configuration says"
                raise PyworkersError(f"{self.queue} is an ordered queue, which stays in its Redis", hint=hint)

    def look(self) -> Iterator[int]:
        """Count the jobs that would move, and those that would stay; yields how many were looked at."""
        self.counts = MoveCounts()
        self.counts.moved["queue"] += len(self.counts.without_odd(self._parked()))
        for place in PLACES:
            for read in self._pages(place, acting=False):
                self.counts.moved[place] += len(read.jobs)
                yield read.number

    def move(self) -> Iterator[int]:
        """Move the jobs; yields how many were looked at. Raises PyworkersError for another move under way."""
        self.counts = MoveCounts()
        state = self._begin()
        last = self._continue(state)
        for place in PLACES:
            for read in self._pages(place, acting=True):
                last = self._move(state, read)
                yield read.number
        self._target.run(moving.expire_receipt(self._to, state))
        hit("move_ended")
        self._source.run(moving.finish(self._from, state, last))

    def back(self, *, unchecked: bool = False) -> GivenBack:
        """Give the jobs that a move has parked back to their places in the source, and end the move.

        Those that have arrived in the target are removed instead, as the receipt there says. Raises
        PyworkersError if the target does not know the move, or cannot be asked, unless ``unchecked``: then
        jobs that had arrived run twice.
        """
        state = self._source.run(moving.state(self._from, self.queue))
        if state is None:
            raise PyworkersError(f"no move of {self.queue} has begun, or it has ended: no job is parked")
        parked = self._parked()
        arrived = self._close(state, len(parked), unchecked=unchecked)
        hit("back_closed")
        number = 0
        if parked and arrived >= state.portion:
            known = self._source.run(moving.records(self._from, parked))
            portion = Portion(state.portion, mine=True, jobs=[job for job in parked if not job.odd])
            number = len(portion.jobs) * self._source.run(moving.remove(self._from, state, portion, known))
            hit("back_removed")
        if arrived >= 0:
            self._target.run(moving.expire_receipt(self._to, state))
        back = self._source.run(moving.give_back(self._from, state))
        if back < 0:
            reason = "another process continues it" if back == -1 else "a key of the source has another type"
            raise PyworkersError(
                f"the move of {self.queue} does not end: {reason}", hint="run the same command again"
            )
        odd = sum(job.odd for job in parked)
        # Next to jobs that had arrived, odd entries are in the queue already.
        return GivenBack(max(0, back - odd), number, odd)

    def _parked(self) -> Sequence[ParkedJob]:
        try:
            return self._source.run(moving.parked(self._from, self.queue))
        except StoreError as error:
            if error.code != "WRONGTYPE":
                raise
            key = self._from.moving(self.queue)
            raise PyworkersError(
                f"the key {key} is not a list of parked jobs: another program has written it",
                hint=f"check it, and rename it: redis-cli RENAME {key} ANOTHER",
            ) from error

    def _close(self, state: MoveState, parked: int, *, unchecked: bool) -> int:
        """The number of the last portion that has arrived, after which none does; -1 if that is unknown."""
        try:
            arrived = self._target.run(moving.close(self._to, state))
        except RedisUnavailableError as error:
            arrived, reason = -1, error.message
        else:
            reason = "it has no receipt of this move"
        if arrived < 0 and parked and not unchecked:
            raise PyworkersError(
                f"whether the {parked} parked jobs of {self.queue} are in the target is unknown: {reason}",
                hint="with --yes they are put back without this check; those that have arrived run twice",
            )
        return arrived

    def _begin(self) -> MoveState:
        self.check()
        new = MoveState(self.queue, secrets.token_hex(8), 0, self._name)
        state = self._source.run(moving.begin(self._from, new))
        hit("move_begun")
        if self._target.run(moving.state(self._to, self.queue)) == state:
            self._source.run(moving.finish(self._from, state, state.portion))
            raise PyworkersError(f"{self.queue} cannot move: source and target are the same Redis")
        return state

    def _continue(self, state: MoveState) -> int:
        """Move what an earlier process has left parked; returns the number of the last portion."""
        parked = self._parked()
        if parked and self._target.run(moving.receipt(self._to, state)) is None:
            where = f" to {state.target}" if state.target else ""
            raise PyworkersError(
                f"a move of {self.queue}{where} has parked {len(parked)} jobs; this target does not know it",
                hint="finish that move first, with the same --to",
            )
        self._target.run(moving.expect(self._to, state))
        arrived = self._target.run(moving.receipt(self._to, state)) or b"0"
        if arrived.startswith(moving.CLOSED):
            raise PyworkersError(
                f"the parked jobs of {self.queue} are being put back", hint="finish that first: --back"
            )
        self._arrived = int(arrived)
        return self._move(state, ReadJobs("queue"))

    def _move(self, state: MoveState, read: ReadJobs) -> int:
        """Move these jobs, and what was parked before; returns the number of the last portion."""
        while True:
            portion = self._source.run(moving.park(self._from, state, read, self._arrived))
            if portion is None:
                raise PyworkersError(f"another process has ended this move of {self.queue}")
            if portion.jobs:
                hit("move_parked")
                self._deliver(state, portion)
            if portion.mine:
                return portion.number

    def _deliver(self, state: MoveState, portion: Portion) -> None:
        portion = portion._replace(jobs=self.counts.without_odd(portion.jobs))
        known = self._source.run(moving.records(self._from, portion.jobs))
        pushed = self._target.run(moving.push(self._to, state, portion, known))
        if pushed < 0:
            raise PyworkersError(
                self._refusal(pushed), hint="the jobs stay parked: run the same command to continue"
            )
        self._arrived = max(self._arrived, portion.number)
        hit("move_pushed")
        self._source.run(moving.remove(self._from, state, portion, known))
        hit("move_removed")
        self.counts.moved.update(job.place.decode() for job in portion.jobs)

    def _refusal(self, pushed: int) -> str:
        if pushed == -1:
            return (
                f"the target has no receipt of the move of {self.queue}: its data are gone, or others, or "
                "the jobs are being put back"
            )
        return "the target has a key of another type"

    def _pages(self, place: str, *, acting: bool) -> Iterator[ReadJobs]:
        """The jobs that may move, page by page."""
        return self._waiting(acting) if place == "queue" else self._scored(place)

    def _waiting(self, acting: bool) -> Iterator[ReadJobs]:
        """From the end that is popped next on. Jobs that stay remain there, in their order."""
        for _ in range(_MOST_PASSES if acting else 1):
            size = self._source.run(queues.size(self._from, self.queue))
            staying: Counter[str] = Counter()
            looked_at, page = 0, PageSize(PAGE)
            while size > looked_at:
                skipped, wanted = staying.total() if acting else looked_at, min(page.jobs, size - looked_at)
                raws = self._source.run(moving.last_jobs(self._from, self.queue, skipped, wanted))
                if not raws:
                    break
                page.note(raws)
                looked_at += len(raws)
                jobs = list(self._movable("queue", raws, staying))
                yield ReadJobs("queue", jobs, len(raws), skipped)
            if self._source.run(queues.size(self._from, self.queue)) <= staying.total():
                break
        self.counts.left.update(staying)

    def _scored(self, place: str) -> Iterator[ReadJobs]:
        pages = MembersByScore(moving.place_of(self._from, self.queue, place))
        while not pages.ended:
            members = self._source.run(pages.next_page())
            raws = [raw for raw, _ in members]
            yield ReadJobs(place, list(self._movable(place, raws, self.counts.left)), len(raws))

    def _movable(self, place: str, raws: list[bytes], staying: Counter[str]) -> Iterator[bytes]:
        judged = [job for raw in raws if (job := rules.judge(raw, self.queue, place)) is not None]
        waited_for = self._awaited(judged)
        for job in judged:
            reason = job.reason or (AWAITED if job.jid in waited_for else "")
            if reason:
                staying[reason] += 1
            else:
                yield job.raw

    def _awaited(self, jobs: list[Candidate]) -> set[str]:
        return self._source.run(
            moving.awaited(self._from, [job.jid for job in jobs if job.tracked and job.jid])
        )
