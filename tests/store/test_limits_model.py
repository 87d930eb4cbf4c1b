"""A model of limits on jobs at once: after all events in any order, no slot is lost, and each job runs.

Hypothesis draws the sequence: jobs with one limit or two, servers that die, asks and ends that are sent
twice, people who delete jobs that wait. The scripts run in a real server.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pyworkers.protocol.limits import Ask, Want
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.store.calls import arun
from pyworkers.store.flow import limits
from pyworkers.store.flow.limits import AskedJob, Verdict
from tests.helpers.models import OWNERS, TwoServers, check, owners

QUEUES = ["p", "q"]
WANTS = {"one": Want("one", 1, 0.0), "two": Want("two", 2, 0.0)}
queues = st.sampled_from(QUEUES)
# The order in which a job names its limits is that in which it waits for them.
wants = st.sampled_from([("one",), ("two",), ("one", "two"), ("two", "one")])
# How a job ends that runs: it returns to its queue after a stop of its server.
ends = st.sampled_from([DONE, DONE, Outcome(Fate.REQUEUE), Outcome(Fate.DEAD)])


class LimitsModel(TwoServers):
    """Two servers run jobs of two queues; either may die at any time."""

    @initialize()
    def start(self) -> None:
        self.begin(QUEUES)
        self.number = 0
        self.alive: set[str] = set()
        self.running: dict[str, list[tuple[str, bytes]]] = {owner: [] for owner in OWNERS}

    # --- the steps ------------------------------------------------------------------------------------------

    @rule(queue=queues, names=wants)
    def enqueue(self, queue: str, names: tuple[str, ...]) -> None:
        self.number += 1
        jid = f"j{self.number}"
        self.do(self.redis.lpush(self.keys.queue(queue), json.dumps({"jid": jid, "wants": names})))
        self.alive.add(jid)

    @rule(owner=owners, queue=queues, again=st.booleans())
    def run_the_next_job(self, owner: str, queue: str, again: bool) -> None:
        """A server fetches a job, and asks for it; again if the answer is lost."""
        self.fetch(owner, queue, again)

    def fetch(self, owner: str, queue: str, again: bool = False) -> bool:
        jobs = self.do(self.stores[owner].exchange(queue, [], 1, 1.0)).jobs
        for raw in jobs:
            found = [self.do(self.ask(owner, queue, raw)) for _ in range(1 + again)]
            if found[0] is Verdict.GRANTED:
                self.running[owner].append((queue, raw))
            repeated = Verdict.GRANTED if found[0] is Verdict.GRANTED else Verdict.GONE
            assert found[1:] in ([], [repeated])
        return bool(jobs)

    async def ask(self, owner: str, queue: str, raw: bytes) -> Verdict:
        asking = limits.ask(self.keys, owner, [AskedJob(ask_of(raw), queue, raw)])
        [reply] = await arun(self.redis, asking)
        assert reply is not None
        return reply.verdict

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data(), outcome=ends, again=st.booleans())
    def end(self, data: st.DataObject, outcome: Outcome, again: bool) -> None:
        """A running job ends; the outcome may be sent twice."""
        owner = data.draw(st.sampled_from([owner for owner in OWNERS if self.running[owner]]))
        self.settle(owner, data.draw(st.sampled_from(self.running[owner])), outcome, again)

    def settle(self, owner: str, job: tuple[str, bytes], outcome: Outcome, again: bool = False) -> None:
        queue, raw = job
        settled = [(raw, outcome.with_effects(*limits.frees(owner, ask_of(raw))))]
        found = self.do(self.stores[owner].exchange(queue, settled, 0, 1.0))
        assert (list(found.stale), list(found.failed)) == ([], [])
        if again:
            assert self.do(self.stores[owner].exchange(queue, settled, 0, 1.0)).stale == [0]
        self.running[owner].remove(job)
        if outcome.fate is not Fate.REQUEUE:
            self.alive.remove(jid_of(raw))

    @rule(owner=owners)
    def crash_and_recover(self, owner: str) -> None:
        """The slots of the server are freed at the next sweep: it comes back under another name."""
        self.do(self.redis.delete(self.keys.lease(owner)))
        peer = self.stores[next(name for name in OWNERS if name != owner)]
        assert self.do(peer.recover(owner, QUEUES, 1000)) == len(self.running[owner])
        self.do(arun(self.redis, limits.sweep(self.keys)))
        self.do(self.redis.delete(self.keys.tombstone(owner)))
        self.do(self.stores[owner].renew(30, QUEUES))
        self.running[owner] = []

    @rule(data=st.data())
    def delete_a_job_that_waits(self, data: st.DataObject) -> None:
        if waiting := self.do(self.redis.zrange(self.keys.schedule, 0, -1)):
            raw = data.draw(st.sampled_from(waiting))
            self.do(self.redis.zrem(self.keys.schedule, raw))
            self.alive.remove(jid_of(raw))

    @rule()
    def sweep(self) -> None:
        self.do(arun(self.redis, limits.sweep(self.keys)))

    @rule()
    def run_all_jobs(self) -> None:
        """Without another event, each end calls the next job, and no job is left."""
        moved = True
        while moved:
            moved = False
            for owner in OWNERS:
                for queue in QUEUES:
                    moved |= self.fetch(owner, queue)
            for owner in OWNERS:
                for job in self.running[owner][:]:
                    self.settle(owner, job, DONE)
                    moved = True
        assert not self.alive

    # --- what holds after each step -------------------------------------------------------------------------

    @invariant()
    def each_slot_is_held_by_a_running_job(self) -> None:
        for name, want in WANTS.items() if hasattr(self, "alive") else ():
            holders = {name.decode() for name in self.do(self.redis.zrange(self.keys.limit(name), 0, -1))}
            running = [(owner, ask_of(raw)) for owner in OWNERS for _, raw in self.running[owner]]
            assert holders == {limits.holder_of(owner, ask) for owner, ask in running if want in ask.wants}
            assert len(holders) <= want.most

    @invariant()
    def each_job_is_somewhere(self) -> None:
        if hasattr(self, "alive"):
            stored: list[Any] = self.do(self.redis.zrange(self.keys.schedule, 0, -1))
            for queue in QUEUES:
                stored += self.do(self.redis.lrange(self.keys.queue(queue), 0, -1))
            stored += [raw for jobs in self.running.values() for _, raw in jobs]
            assert sorted(map(jid_of, stored)) == sorted(self.alive)


def jid_of(raw: bytes) -> str:
    return str(json.loads(raw)["jid"])


def ask_of(raw: bytes) -> Ask:
    job = json.loads(raw)
    return Ask(job["jid"], f"of {job['jid']}", tuple(WANTS[name] for name in job["wants"]))


def test_no_slot_is_lost_and_each_job_runs(redis_url: str) -> None:
    check(LimitsModel, redis_url, examples=25, steps=30)
