"""A model of the store: after all events in any order, each job is in exactly one place.

Hypothesis draws the sequence; the model is a handful of Python lists; the server is real.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pyworkers.protocol.effects import CountOut
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.store import sets
from pyworkers.store.calls import arun
from pyworkers.store.jobs import LeaseLostError
from pyworkers.store.sets import Move
from tests.helpers.models import OWNERS, TwoServers, check, owners

QUEUES = ["a", "b"]
COUNT = CountOut("members", "left", "callbacks", b"callback")
# The others settle nothing.
SETTLING = [fate for fate in Fate if fate not in (Fate.NOTE, Fate.ASK, Fate.ANSWER)]
queues = st.sampled_from(QUEUES)


class StoreModel(TwoServers):
    """Two incarnations share two queues; either may die at any time."""

    @initialize()
    def start(self) -> None:
        self.begin(QUEUES)
        self.fates: dict[str, list[bytes]] = {
            place: [] for place in ("finished", "schedule", "retry", "dead")
        }
        self.queues: dict[str, list[bytes]] = {queue: [] for queue in QUEUES}
        self.held: dict[tuple[str, str], list[bytes]] = {(o, q): [] for o in OWNERS for q in QUEUES}
        self.lost: set[str] = set()
        self.number = 0
        self.counted = 0
        self.do(self.redis.hset(self.keys.own("members"), "left", 10**6))

    @rule(queue=queues, count=st.integers(1, 5))
    def enqueue(self, queue: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            job = b"job %d" % self.number
            self.do(self.redis.lpush(self.keys.queue(queue), job))
            self.queues[queue].append(job)

    @precondition(lambda self: any(self.queues.values()))
    @rule(owner=owners, queue=queues, wanted=st.integers(1, 4))
    def fetch(self, owner: str, queue: str, wanted: int) -> None:
        if owner in self.lost:
            with pytest.raises(LeaseLostError):
                self.do(self.stores[owner].exchange(queue, [], wanted, 1.0))
            return
        taken = self.do(self.stores[owner].exchange(queue, [], wanted, 1.0)).jobs
        assert taken == self.queues[queue][:wanted]
        del self.queues[queue][:wanted]
        self.held[owner, queue] += taken

    @precondition(lambda self: any(self.held.values()))
    @rule(owner=owners, queue=queues, fate=st.sampled_from(SETTLING), data=st.data(), again=st.booleans())
    def settle(self, owner: str, queue: str, fate: Fate, data: st.DataObject, again: bool) -> None:
        """Settle a job, perhaps one that was taken from us, perhaps twice as after a lost reply."""
        candidates = self.held[owner, queue] or [b"a stranger"]
        job = data.draw(st.sampled_from(candidates))
        ours = job in self.held[owner, queue]
        outcome = Outcome(fate, at=50.0, payload=b"" if fate is Fate.REQUEUE else job + b"'")
        outcome = outcome.with_effects(*data.draw(st.sampled_from([(), (COUNT,)])))
        batch = [(job, outcome)]
        assert self.do(self.stores[owner].exchange(queue, batch, 0, 1.0)).stale == ([] if ours else [0])
        if again:
            assert self.do(self.stores[owner].exchange(queue, batch, 0, 1.0)).stale == [0]
        if ours:
            self.counted += len(outcome.effects)
            self.held[owner, queue].remove(job)
            self.place(fate, queue, job)

    def place(self, fate: Fate, queue: str, job: bytes) -> None:
        if fate is Fate.REQUEUE:
            self.queues[queue].insert(0, job)
        elif fate in (Fate.DONE, Fate.DISCARD, Fate.CANCELLED, Fate.EXPIRED):
            self.fates["finished"].append(job)
        else:
            name = {Fate.RETRY: "retry", Fate.SNOOZE: "schedule", Fate.DEAD: "dead"}[fate]
            self.fates[name].append(job + b"'")

    @rule(owner=owners)
    def crash_and_recover(self, owner: str) -> None:
        """The lease is gone; the other incarnation takes over, in steps that are too small for all."""
        self.do(self.redis.delete(self.keys.lease(owner)))
        peer = self.stores[next(name for name in OWNERS if name != owner)]
        while self.do(peer.recover(owner, QUEUES, 2)) > 0:
            pass
        self.lost.add(owner)
        self.return_all(owner)

    @precondition(lambda self: self.lost)
    @rule(owner=owners)
    def return_under_a_new_name(self, owner: str) -> None:
        if owner in self.lost:
            self.lost.discard(owner)
            self.do(self.redis.delete(self.keys.tombstone(owner)))
            self.do(self.stores[owner].renew(30, QUEUES))

    @rule(owner=owners, queue=queues)
    def give_back(self, owner: str, queue: str) -> None:
        self.do(self.stores[owner].give_back(queue, most=2))
        self.return_one(owner, queue)

    def return_all(self, owner: str) -> None:
        for queue in QUEUES:
            self.return_one(owner, queue)

    def return_one(self, owner: str, queue: str) -> None:
        self.queues[queue] = self.held[owner, queue] + self.queues[queue]
        self.held[owner, queue] = []

    @precondition(lambda self: self.fates["schedule"] or self.fates["retry"])
    @rule(
        zset=st.sampled_from(["schedule", "retry"]), queue=queues, most=st.integers(1, 5), twice=st.booleans()
    )
    def promote(self, zset: str, queue: str, most: int, twice: bool) -> None:
        key = getattr(self.keys, zset)

        def promote(moves: list[Move], wanted: int = 0) -> sets.Promoted:
            call = sets.promote(self.keys, key, moves, 100.0, OWNERS[0], wanted)
            found: sets.Promoted = self.do(arun(self.redis, call))
            return found

        members = promote([], most).due
        moves = [Move(member, member, queue) for member in members]
        assert promote(moves).moved == len(members)
        if twice:
            assert promote(moves).moved == 0
        for member in members:
            self.fates[zset].remove(member)
            self.queues[queue].append(member)

    @invariant()
    def effects_happen_with_their_settlement_alone(self) -> None:
        if hasattr(self, "redis"):
            assert int(self.do(self.redis.hget(self.keys.own("members"), "left"))) == 10**6 - self.counted

    @invariant()
    def every_job_is_where_the_model_says(self) -> None:
        if not hasattr(self, "keys"):
            return
        for queue in QUEUES:
            stored = self.do(self.redis.lrange(self.keys.queue(queue), 0, -1))
            assert stored[::-1] == self.queues[queue]
            for owner in OWNERS:
                held = self.do(self.stores[owner].inprogress(queue))
                assert Counter(held) == Counter(self.held[owner, queue])
        for zset in ("schedule", "retry", "dead"):
            stored = self.do(self.redis.zrange(getattr(self.keys, zset), 0, -1))
            assert Counter(stored) == Counter(self.fates[zset])


def test_each_job_is_in_exactly_one_place(redis_url: str) -> None:
    check(StoreModel, redis_url, examples=20, steps=40)
