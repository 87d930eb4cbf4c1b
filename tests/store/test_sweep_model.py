"""A model of the sweep: it counts out the members that other programs have deleted, and no other one.

The model is that of batches; another program deletes jobs, and a sweep reads, between any two of its steps.
What the sweep counts out must end batches as the model of batches says. A dead member stays dead.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from pyworkers.protocol.effects import CountMember
from pyworkers.store.calls import Steps, arun
from pyworkers.store.flow.sweep import Swept, begin, sweep
from tests.store.test_batches_model import QUEUE, BatchModel

PARTS = (":members", ":failed", ":dead")
# The deleted job may have kept its batch open: then other members are looked for after it is counted out.
ENOUGH = 5


class SweptModel(BatchModel):
    """Two servers, another program that deletes, and a sweep."""

    @initialize()
    def begin_to_sweep(self) -> None:
        self.deleted: list[bytes] = []
        self.swept = self.sweeps()

    def sweeps(self) -> Iterator[bool]:
        """One call of a sweep at each step, over and over; True at the end of a sweep."""
        while True:
            self.do(self.redis.delete(self.keys.sweep("turn")))
            token = uuid.uuid4().hex[:16]
            if self.do(arun(self.redis, begin(self.keys, token))) is None:
                steps: Steps[Swept] = sweep(self.keys, token)
                try:
                    call = next(steps)
                    while True:
                        reply = self.do(arun(self.redis, call))
                        yield False
                        call = steps.send(reply)
                except StopIteration as stop:
                    assert not stop.value.errors
            yield True

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def another_program_deletes_a_waiting_job(self, data: st.DataObject) -> None:
        stored = self.do(self.redis.lrange(self.keys.queue(QUEUE), 0, -1))
        raw = data.draw(st.sampled_from(stored))
        if "then" in json.loads(raw) and self.is_dead(raw):
            return
        assert self.do(self.redis.lrem(self.keys.queue(QUEUE), 1, raw)) == 1
        self.waiting.remove(json.loads(raw)["jid"])
        self.lose(raw)

    @precondition(lambda self: any(self.kept.values()))
    @rule(data=st.data())
    def another_program_deletes_a_kept_job(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in self.kept if self.kept[name]]))
        raw = data.draw(st.sampled_from(self.kept[name]))
        if "then" in json.loads(raw) and self.is_dead(raw):
            return  # The steps after it are missed, one by one.
        assert self.do(self.redis.zrem(getattr(self.keys, name), raw)) == 1
        self.kept[name].remove(raw)
        self.lose(raw)

    def lose(self, raw: bytes) -> None:
        if "batch" in json.loads(raw) and not self.is_dead(raw):
            self.deleted.append(raw)

    def is_dead(self, raw: bytes) -> bool:
        return self.is_member(raw, (":dead",))

    @rule(calls=st.integers(1, 8))
    def sweep_a_little(self, calls: int) -> None:
        for _ in range(calls):
            self.read_on()

    @rule()
    def sweep_until_all_is_repaired(self) -> None:
        for _ in range(ENOUGH):
            while not self.read_on():
                pass
        for raw in self.deleted:
            # A job that lives keeps the batch open.
            assert self.do(self.redis.hget(self.keys.batch(json.loads(raw)["batch"]), "open")) != b"0"

    def read_on(self) -> bool:
        ended = next(self.swept)
        for raw in self.deleted[:]:
            if not self.is_member(raw):
                self.deleted.remove(raw)
                job = json.loads(raw)
                self.push(self.batches.apply([CountMember(job["batch"], job["jid"], "missing")]))
        return ended

    def is_member(self, raw: bytes, parts: Iterable[str] = PARTS) -> bool:
        job = json.loads(raw)
        sets = [self.keys.batch(job.get("batch", "")) + part for part in parts]
        return any(self.do(self.redis.sismember(name, job["jid"])) for name in sets)


@pytest.mark.fault("D3")
def test_the_sweep_counts_out_what_is_deleted_and_nothing_else(redis_url: str) -> None:
    model: type[SweptModel] = type("Model", (SweptModel,), {"url": redis_url})
    case = model.TestCase
    case.settings = settings(
        max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case("runTest").runTest()
