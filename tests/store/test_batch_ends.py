"""The table of ends: each way in which a member may end, in each kind of whole.

The same in memory is compared with it by test_batches_model.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pyworkers import RESULT, RESULTS, Worker, chain, parallel
from pyworkers.api import Queue
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError, JobFailedError
from pyworkers.plugins.batches import Batch
from pyworkers.protocol.effects import CountMember, Effect
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.plans import GONE
from pyworkers.protocol.flow.rules import effects_of
from pyworkers.store.admin import Admin
from pyworkers.store.calls import script
from pyworkers.store.flow.removal import written

ENDS = {
    "done": Ending.DONE,
    "discarded": Ending.DISCARDED,
    "dead": Ending.DEAD,
    "dropped": Ending.DROPPED,
    "cancelled": Ending.CANCELLED,
    "deleted": Ending.DELETED,
    "expired": Ending.EXPIRED,
    "replaced": Ending.REPLACED,
    "missing": None,
}
LEFT_OUT = {"cancelled", "deleted", "expired", "missing"}


class App:
    """An application whose jobs end as a test says."""

    def __init__(self, url: str, namespace: str) -> None:
        self.config = RedisConfig(url, namespace)
        self.admin = Admin(self.config)
        self.worker = worker = Worker(url, namespace=namespace)
        self.client = worker.client

        @worker.job(queue="q")
        def step(*args: object) -> None: ...

        @worker.job(queue="after")
        def after(what: str, batch_id: str = "") -> None: ...

        self.step, self.after = step, after

    def close(self) -> None:
        self.client.close()
        self.admin.redis.close()

    def calls(self) -> Any:
        return {f"on_{what}": self.after.call(what) for what in ("success", "complete", "death")}

    def whole(self, kind: str, missing: Any) -> Batch:
        """A whole whose member "x" ends in some way; and the job after it, if it has one."""
        step, calls = self.step, self.calls()
        if kind == "chain":
            return chain(step.call("x"), step.call("next", RESULT), step.call(), **calls).enqueue()
        if kind == "group":
            return parallel(step.call("a"), step.call("x"), missing=missing, **calls).enqueue()
        if kind == "group, then":
            both = parallel(step.call("a"), step.call("x"), missing=missing)
            return both.then(step.call("next", RESULTS), **calls).enqueue()
        if kind == "nested":
            with self.worker.batch(**calls) as outer:
                step.enqueue("a")
                parallel(step.call("b"), step.call("x"), missing=missing).enqueue()
            return outer
        if kind == "nested chain":
            with self.worker.batch(**calls) as outer:
                step.enqueue("a")
                chain(step.call("x"), step.call("next", RESULT)).enqueue()
            return outer
        with self.worker.batch(**calls, missing=missing) as batch:
            for what in "ax":
                step.enqueue(what)
        return batch

    def take(self) -> list[dict[str, Any]]:
        """Take all jobs of the queue."""
        found = [job.raw for job in Queue("q", self.config)][::-1]
        self.admin.redis.delete(self.admin.keys.queue("q"))
        return [json.loads(raw) for raw in found]

    def take_and_put_back(self) -> list[dict[str, Any]]:
        """All jobs of the queue, which stay there."""
        return [json.loads(job.raw) for job in Queue("q", self.config)]

    def end(self, job: dict[str, Any], end: str) -> None:
        """Apply the effects of an end."""
        ending = ENDS[end]
        if ending is None:
            effects: tuple[Effect, ...] = (CountMember(job["batch"], job["jid"], "missing"),)
        else:
            result = json.dumps(job["args"][:1]).encode() if ending is Ending.DONE else None
            effects = effects_of(Ended(ending, job, job["jid"], "q", "step", 1.0, result=result))
        names, args = written(self.admin.keys, [(1, effect) for effect in effects])
        self.admin.run(script("removal/apply", names, args, lambda _: None, self.admin.keys.namespace))

    def run(self, end: str) -> list[Any]:
        """End all jobs, until none is left. Returns the arguments of the jobs called "next"."""
        following = []
        while jobs := self.take():
            for job in jobs:
                following += [job["args"][1]] if job["args"][:1] == ["next"] else []
                self.end(job, end if job["args"] == ["x"] else "done")
        return following

    def fired(self) -> list[str]:
        return [job.args[0] for job in Queue("after", self.config)][::-1]


@pytest.fixture
def app(redis_url: str, namespace: str) -> Iterator[App]:
    with closing(App(redis_url, namespace)) as app:
        yield app


KINDS = ("batch", "chain", "group", "group, then", "nested", "nested chain")


@pytest.mark.parametrize("missing", ["fail", "ignore"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ENDS)
def test_a_whole_succeeds_if_all_of_its_members_are_done(app: App, kind: str, end: str, missing: str) -> None:
    whole = app.whole(kind, missing)
    following = app.run(end)
    status = whole.status()
    is_left_out = end == "replaced" or (missing == "ignore" and end in LEFT_OUT)
    ignored = is_left_out and "chain" not in kind
    if end in ("done", "discarded") or ignored:
        assert app.fired() == ["complete", "success"]
        assert (status.state, status.pending, status.gone, status.dead) == ("succeeded", 0, 0, 0)
        assert status.total == status.done
        x = [] if ignored and missing == "ignore" else [["x"]] if end == "done" else [None]
        if kind == "group, then":
            assert following == [[["a"], *x]]
        elif "chain" in kind:
            assert following == x
        if kind == "group":
            assert whole.result() == [["a"], *x]
        return
    # The next steps of a chain wait for a step that is replaced.
    end = "deleted" if end == "replaced" else end
    assert following == []
    assert (status.state, status.success_at, status.reason) == ("dead", None, end)
    with pytest.raises(JobFailedError, match=f"{whole.id} is dead: a member is {end}: ") as found:
        whole.result(None)
    assert (found.value.jid, found.value.state) == (status.reason_jid, end)
    with pytest.raises(JobFailedError, match=f"a member is {end}: {status.reason_jid}"):
        app.client.result(whole.id)
    stays = end == "dead" and kind in ("chain", "group, then")
    assert app.fired() == (["death"] if stays else ["death", "complete"])
    assert status.total == status.pending + status.done + status.dead + status.gone
    if kind in ("batch", "group"):
        assert {name: number for name, number in status.as_dict().items() if name in (*GONE, "dead")} == {
            **dict.fromkeys((*GONE, "dead"), 0), end: 1,
        }  # fmt: skip
    elif "nested" in kind:
        assert (status.done, status.dead, status.pending) == (1, 1, 0)
    elif end != "dead":
        assert status.skipped == status.total - 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_member_that_is_done_later_makes_the_whole_succeed(app: App, kind: str) -> None:
    whole = app.whole(kind, "fail")
    [dead] = [job for job in app.take_and_put_back() if job["args"] == ["x"]]
    app.run("dead")
    app.end(dead, "done")
    app.run("done")
    assert app.fired()[0] == "death" and app.fired()[-1] == "success"
    assert sorted(app.fired()) == ["complete", "death", "success"]
    assert (whole.status().state, whole.status().dead) == ("succeeded", 0)


def test_a_member_that_was_missing_counts_once_it_is_done(app: App) -> None:
    run = app.whole("chain", "fail")
    [first] = app.take()
    app.end(first, "missing")
    assert (run.status().missing, run.status().skipped) == (1, 2)
    app.end(first, "done")
    assert app.run("done") == [["x"]]
    assert (run.status().state, run.status().gone) == ("succeeded", 0)


@pytest.mark.parametrize(("missing", "state"), [("fail", "dead"), ("ignore", "succeeded")])
def test_a_dead_member_that_is_deleted_is_gone(app: App, missing: str, state: str) -> None:
    batch = app.whole("batch", missing)
    [dead] = [job for job in app.take_and_put_back() if job["args"] == ["x"]]
    app.run("dead")
    app.end(dead, "deleted")
    status = batch.status()
    assert (status.state, status.dead, status.deleted) == (state, 0, int(missing == "fail"))
    assert (status.reason, status.reason_jid) == ("dead", dead["jid"])


def test_a_batch_of_the_last_release_keeps_its_numbers(app: App) -> None:
    """It has none of the fields for the kinds of ends, and counted some members out."""
    batch = app.whole("batch", "fail")
    key = app.admin.keys.batch(batch.id)
    app.admin.redis.hset(key, "total", 1)
    jobs = app.take()
    app.admin.redis.srem(f"{key}:members", jobs[0]["jid"])
    app.end(jobs[1], "done")
    assert app.fired() == ["complete", "success"]
    assert (batch.status().total, batch.status().done, batch.status().gone) == (1, 1, 0)


@pytest.mark.parametrize("missing", ["", "out", None, True])
def test_missing_is_one_of_two_words(app: App, missing: Any) -> None:
    with pytest.raises(BadArgumentError, match='missing must be "fail" or "ignore", not'):
        app.worker.batch(missing=missing)
    with pytest.raises(BadArgumentError, match='missing must be "fail" or "ignore", not'):
        parallel(app.step.call(), missing=missing)
