"""A model of batches: after all events in any order, each callback is enqueued once, and none is lost.

Hypothesis draws the sequence: batches and canvases of any shape, jobs that end in any way, servers that die,
outcomes that are sent twice, people who delete and retry. The scripts run in a real server; the model is that
of ``pyworkers.testing``, which must agree with them after each step.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pyworkers import RESULT, RESULTS, Client, Worker, chain, parallel
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BatchError
from pyworkers.plugins.batches import Batch
from pyworkers.plugins.memory import MemoryBatches
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.ending import Ended, Ending, ending_of
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.flow.rules import MORE_THAN_BATCH, effects_of, member_at
from pyworkers.protocol.outcome import DONE, Fate, Outcome, done_member
from pyworkers.store import sets
from pyworkers.store.calls import arun
from pyworkers.store.flow import removal
from pyworkers.store.flow.cancelling import cancel_batch
from pyworkers.store.sets import Move
from tests.helpers.models import OWNERS, TwoServers, check, owners

FATES = (Fate.DONE, Fate.DONE, Fate.RETRY, Fate.DEAD, Fate.DISCARD, Fate.REQUEUE, Fate.SNOOZE, Fate.CANCELLED)
QUEUE = "q"
EVENTS = ("success", "complete", "death", "cancel")
policies = st.sampled_from(["fail", "ignore"])
# Members of a batch: a job, or a batch around some more.
shapes = st.recursive(st.just("job"), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
canvases = st.recursive(
    st.just("job"),
    lambda inner: st.tuples(
        st.sampled_from(["chain", "group"]), st.lists(inner, min_size=1, max_size=3), policies
    ),
    max_leaves=6,
)


def places_of(raw: bytes) -> tuple[int, int] | None:
    """The places that a worker reports for a member that is done; None if it reports effects."""
    data = json.loads(raw)
    return member_at(data, data["jid"], raw) if MORE_THAN_BATCH.isdisjoint(data) else None


class Both(Client):
    """Enlists in Redis and in the model."""

    def __init__(self, config: RedisConfig, owner: Worker, model: BatchModel) -> None:
        super().__init__(config, owner=owner)
        self._model = model

    def enlist(self, plan: BatchPlan, owner: object = None) -> None:
        super().enlist(plan, owner)
        self._model.push(self._model.batches.enlist(plan))
        self._model.note(plan)


class App(Worker):
    """An application whose client is that of the model."""

    def __init__(self, config: RedisConfig, model: BatchModel) -> None:
        super().__init__(config.url, namespace=config.namespace)
        self._both = Both(config, self, model)

    @property
    def client(self) -> Client:
        return self._both


class BatchModel(TwoServers):
    """Two servers share one queue; either may die at any time."""

    @initialize()
    def start(self) -> None:
        self.begin([QUEUE])
        self.batches = MemoryBatches()
        self.ids: list[str] = []
        self.waiting: list[str] = []
        self.held: dict[str, list[bytes]] = {owner: [] for owner in OWNERS}
        self.kept: dict[str, list[bytes]] = {"retry": [], "dead": []}
        self.app = App(self.config, self)

        @self.app.job(queue=QUEUE)
        def member(*args: Any) -> None: ...

        @self.app.job(queue=QUEUE)
        def after(batch_id: str = "") -> None: ...

        self.member, self.after = member, after

    def teardown(self) -> None:
        if hasattr(self, "app"):
            self.app.client.close()
        super().teardown()

    def push(self, jobs: list[PushedJob]) -> None:
        self.waiting += [job.jid for job in jobs]

    def note(self, plan: BatchPlan) -> None:
        if not plan.exists:
            self.ids.append(plan.id)
        for inner in plan.inner:
            self.note(inner)

    def batch(self, missing: Any) -> Batch:
        calls: Any = {f"on_{event}": self.after.call() for event in EVENTS}
        return self.app.batch("", **calls, missing=missing)

    # --- the steps ------------------------------------------------------------------------------------------

    @rule(shape=shapes, missing=policies)
    def enqueue_a_batch(self, shape: Any, missing: Any) -> None:
        with self.batch(missing):
            self.fill(shape)

    def fill(self, shape: Any) -> None:
        if shape == "job":
            self.member.enqueue()
            return
        for inner in shape:
            if inner == "job":
                self.member.enqueue()
            else:
                with self.batch("fail"):
                    self.fill(inner)

    @rule(canvas=canvases)
    def enqueue_a_canvas(self, canvas: Any) -> None:
        after = self.after
        whole = chain(
            self.canvas(canvas, after_group=None),
            on_success=after.call(),
            on_complete=after.call(),
            on_death=after.call(),
            on_cancel=after.call(),
        )
        whole.enqueue()

    def canvas(self, canvas: Any, after_group: bool | None) -> Any:
        if canvas == "job":
            args = () if after_group is None else (RESULTS if after_group else RESULT,)
            return self.member.call(*args)
        kind, parts, missing = canvas
        if kind == "group":
            return parallel([self.canvas(part, after_group) for part in parts], missing=missing)
        steps = []
        for part in parts:
            steps.append(self.canvas(part, after_group))
            after_group = self.ends_with_group(part)
        return chain(*steps)

    def ends_with_group(self, canvas: Any) -> bool:
        return canvas != "job" and (canvas[0] == "group" or self.ends_with_group(canvas[1][-1]))

    @rule(owner=owners, wanted=st.integers(1, 4))
    def fetch(self, owner: str, wanted: int) -> None:
        taken = self.do(self.stores[owner].exchange(QUEUE, [], wanted, 1.0)).jobs
        self.held[owner] += taken
        for raw in taken:
            self.waiting.remove(json.loads(raw)["jid"])

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), fate=st.sampled_from(FATES), chosen=st.booleans(), again=st.booleans())
    def settle(self, data: st.DataObject, fate: Fate, chosen: bool, again: bool) -> None:
        """A job ends; the outcome may be sent twice, as after a lost reply."""
        owner = data.draw(st.sampled_from([name for name in OWNERS if self.held[name]]))
        raw = data.draw(st.sampled_from(self.held[owner]))
        ending = ending_of(Outcome(fate, chosen=chosen and fate is Fate.DISCARD))
        result = json.dumps(data.draw(st.integers(0, 9))).encode() if ending is Ending.DONE else None
        effects = self.effects(raw, ending, result)
        places = places_of(raw) if ending is Ending.DONE else None
        # A worker reports the first of the two if it can.
        outcome = done_member(*places) if places else Outcome(fate, at=50.0).with_effects(*effects)
        found = self.do(self.stores[owner].exchange(QUEUE, [(raw, outcome)], 0, 1.0))
        assert (list(found.stale), list(found.failed)) == ([], [])
        if again:
            assert self.do(self.stores[owner].exchange(QUEUE, [(raw, outcome)], 0, 1.0)).stale == [0]
        self.held[owner].remove(raw)
        self.push(self.batches.apply(effects))
        if fate in (Fate.RETRY, Fate.DEAD):
            self.kept["retry" if fate is Fate.RETRY else "dead"].append(raw)
        elif fate is Fate.REQUEUE:
            self.waiting.append(json.loads(raw)["jid"])
        elif fate is Fate.SNOOZE:
            self.do(self.redis.delete(self.keys.schedule))
            self.do(self.redis.lpush(self.keys.queue(QUEUE), raw))
            self.waiting.append(json.loads(raw)["jid"])

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data())
    def finish_all(self, data: st.DataObject) -> None:
        """All jobs of a server are done at once."""
        owner = data.draw(st.sampled_from([name for name in OWNERS if self.held[name]]))
        held, self.held[owner] = self.held[owner], []
        settled = []
        for raw in held:
            effects = self.effects(raw, Ending.DONE, b"7")
            places = places_of(raw)
            settled.append((raw, done_member(*places) if places else DONE.with_effects(*effects)))
            self.push(self.batches.apply(effects))
        found = self.do(self.stores[owner].exchange(QUEUE, settled, 0, 1.0))
        assert (list(found.stale), list(found.failed)) == ([], [])

    def effects(self, raw: bytes, ending: Ending, result: bytes | None = None) -> Any:
        data = json.loads(raw)
        return effects_of(Ended(ending, data, data["jid"], QUEUE, data["class"], 1.0, result=result))

    @rule(owner=owners)
    def crash_and_recover(self, owner: str) -> None:
        self.do(self.redis.delete(self.keys.lease(owner)))
        peer = self.stores[next(name for name in OWNERS if name != owner)]
        while self.do(peer.recover(owner, [QUEUE], 2)) > 0:
            pass
        self.do(self.redis.delete(self.keys.tombstone(owner)))
        self.do(self.stores[owner].renew(30, [QUEUE]))
        self.waiting += [json.loads(raw)["jid"] for raw in self.held[owner]]
        self.held[owner] = []

    @precondition(lambda self: any(self.kept.values()))
    @rule(data=st.data(), retry=st.booleans())
    def a_kept_job_is_changed(self, data: st.DataObject, retry: bool) -> None:
        """A retry of a failed or dead job by hand, or its deletion."""
        name = data.draw(st.sampled_from([name for name in self.kept if self.kept[name]]))
        raw = data.draw(st.sampled_from(self.kept[name]))
        key = getattr(self.keys, name)
        if retry:
            assert self.do(arun(self.redis, sets.move(self.keys, key, [Move(raw, raw, QUEUE)], 1.0))) == 1
            self.waiting.append(json.loads(raw)["jid"])
        else:
            assert self.do(arun(self.redis, removal.remove(self.keys, key, [raw], 1.0))) == 1
            self.push(self.batches.apply(self.effects(raw, Ending.DELETED)))
        self.kept[name].remove(raw)

    @precondition(lambda self: any(self.held.values()))
    @rule(data=st.data(), torn=st.booleans())
    def a_member_adds_a_member(self, data: st.DataObject, torn: bool) -> None:
        """Perhaps its server dies after it has put its hold: then its end releases it."""
        raw = data.draw(st.sampled_from([raw for jobs in self.held.values() for raw in jobs]))
        job = json.loads(raw)
        if "batch" not in job:
            return
        batch = Batch(self.app.client, job["batch"], BatchPlan(job["batch"], job["jid"], exists=True))
        try:
            with batch:
                self.member.enqueue()
        except BatchError:
            status = self.batches.status(job["batch"])
            assert status is None or status.success_at is not None or status.cancel_at is not None
            return
        if torn:
            self.do(self.redis.sadd(self.keys.batch(batch.id) + ":members", f"hold:{job['jid']}"))
            self.do(self.redis.hincrby(self.keys.batch(batch.id), "open", 1))
            self.batches.hold(batch.id, job["jid"])

    @precondition(lambda self: self.ids)
    @rule(data=st.data())
    def cancel_a_batch(self, data: st.DataObject) -> None:
        """Its members that wait are removed, also those of batches inside it; running ones continue."""
        batch = data.draw(st.sampled_from(self.ids))
        if self.batches.status(batch) is None:
            return
        waiting = self.do(self.redis.lrange(self.keys.queue(QUEUE), 0, -1))
        found = self.do(arun(self.redis, cancel_batch(self.keys, batch)))
        following = self.batches.cancel(batch)
        assert found.ended == (following is None)
        if following is None:
            return
        self.push(following)
        for raw in (*waiting, *self.kept["retry"]):
            job = json.loads(raw)
            if self.batches.cancels(job.get("batch")):
                if raw in self.kept["retry"]:
                    self.kept["retry"].remove(raw)
                else:
                    self.waiting.remove(job["jid"])
                self.push(self.batches.apply(self.effects(raw, Ending.CANCELLED)))
        self.push(self.batches.cancel(batch) or [])

    # --- what holds after each step -------------------------------------------------------------------------

    @invariant()
    def every_job_is_where_the_model_says(self) -> None:
        if not hasattr(self, "app"):
            return
        stored = self.do(self.redis.lrange(self.keys.queue(QUEUE), 0, -1))
        assert Counter(json.loads(raw)["jid"] for raw in stored) == Counter(self.waiting)

    @invariant()
    def every_batch_has_the_numbers_of_the_model(self) -> None:
        for batch in getattr(self, "ids", ()):
            wanted = self.batches.status(batch)
            if wanted is None:
                continue
            found = Batch(self.app.client, batch).status()
            assert (found.total, found.pending, found.done, found.failed, found.dead, found.lost) == (
                wanted.total, wanted.pending, wanted.done, wanted.failed, wanted.dead, 0,
            )  # fmt: skip
            assert found.kinds == wanted.kinds
            assert (found.reason, found.reason_jid) == (wanted.reason, wanted.reason_jid)
            for event in EVENTS:
                assert (getattr(found, f"{event}_at") is None) == (getattr(wanted, f"{event}_at") is None)
            assert found.open == wanted.open


@pytest.mark.timeout(900)
def test_each_callback_is_enqueued_once(redis_url: str) -> None:
    check(BatchModel, redis_url, examples=20, steps=30)
