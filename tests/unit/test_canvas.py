"""Chains and groups without Redis: what is made of them, and their runs under ``fake``."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import OrderedDict
from datetime import datetime
from typing import Any, NamedTuple

import pytest

import pyworkers
from pyworkers import RESULT, RESULTS, Worker, chain, parallel
from pyworkers.errors import BadArgumentError, BadMessageError, BadResultError, Discard, JobFailedError, Kill
from pyworkers.plugins.batches import Batch
from pyworkers.plugins.canvas import Chain, Parallel
from pyworkers.protocol.effects import CountMember, Push
from pyworkers.protocol.envelope import decode, encode
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of, effects_of_stored
from pyworkers.protocol.outcome import DONE, Fate
from pyworkers.testing import EnqueuedJob, Fake, fake, inline

NOWHERE = "redis://127.0.0.1:1/0"


class App:
    """Jobs that note their calls and return something."""

    def __init__(self) -> None:
        self.worker = worker = Worker(NOWHERE)
        self.ran: list[Any] = []

        @worker.job
        def start(value: Any) -> Any:
            self.ran.append(("start", value))
            return value

        @worker.job(queue="other", retry=3)
        def add(number: int, to: int) -> int:
            self.ran.append(("add", number, to))
            return number + to

        @worker.job
        def show(*args: Any) -> None:
            self.ran.append(("show", *args))

        @worker.job
        def fail(kind: str) -> None:
            raise {"kill": Kill, "discard": Discard}[kind](kind)

        @worker.job
        def after(what: str, batch_id: str = "") -> None:
            self.ran.append((what, batch_id))

        self.start, self.add, self.show, self.fail, self.after = start, add, show, fail, after


@pytest.fixture
def app() -> App:
    return App()


def finish(queue: Fake) -> None:
    """Drain, also if a job raises."""
    while queue.jobs:
        try:
            queue.drain()
        except (Kill, Discard):
            continue


def test_a_step_gets_what_the_one_before_returned(app: App, queue: Fake) -> None:
    batch = chain(app.start.call(1), app.add.call(10, RESULT), app.show.call(7, [RESULT])).enqueue()
    assert len(queue.jobs) == 1
    queue.drain()
    assert app.ran == [("start", 1), ("add", 10, 1), ("show", 7, [11])]
    status = batch.status()
    assert (status.kind, status.total, status.done) == ("chain", 3, 3)
    assert batch.result() is None
    [_, added, _] = queue.ran
    assert (added.queue, added.data["retry"], added.data["batch"]) == ("other", 3, batch.id)


def test_the_job_after_a_group_gets_the_results_in_order(app: App, queue: Fake) -> None:
    batch = parallel(app.start.call(n) for n in range(4)).then(app.show.call(RESULTS)).enqueue()
    assert [job.args for job in queue.jobs] == [[0], [1], [2], [3]]
    queue.jobs.reverse()
    queue.drain()
    assert app.ran[-1] == ("show", [0, 1, 2, 3])
    assert batch.status().success_at is not None


class One(NamedTuple):
    number: int


def test_a_result_stands_in_any_kind_of_list_and_dict(app: App, queue: Fake) -> None:
    chain(app.start.call(1), app.show.call(OrderedDict(a=RESULT), One(RESULT))).enqueue()
    queue.drain()
    assert app.ran[-1] == ("show", {"a": 1}, [1])


@pytest.mark.parametrize(
    "value", ['{"pyworkers":"RESULTS"}', {"pyworkers": "x"}, 'ü\n"\\', None, 1.5, [["a"]], "%s %1"]
)
def test_results_are_passed_unchanged(app: App, queue: Fake, value: Any) -> None:
    both = parallel(app.start.call(value), app.start.call("x"))
    chain(app.start.call(value), app.start.call(RESULT), both, app.show.call("after", RESULTS)).enqueue()
    queue.drain()
    assert app.ran[1] == ("start", value)
    assert app.ran[-1] == ("show", "after", [value, "x"])


def test_a_job_that_follows_expires_from_the_time_when_it_is_due(app: App, queue: Fake) -> None:
    soon, after = app.show.options(expires_in=60), app.after.options(expires_in=60)
    steps = (
        app.start.call(1),
        soon.call(RESULT),
        parallel(soon.call(2), app.start.call(3)),
        soon.call(RESULTS),
    )
    batch = chain(*steps, on_success=after.call("success")).enqueue()
    queue.travel(hours=1)
    queue.drain()
    assert batch.status().done == 4
    shown = [("show", 1), ("show", 2), ("start", 3), ("show", [None, 3])]
    assert app.ran == [("start", 1), *shown, ("success", batch.id)]
    chain(app.start.call(1), soon.call(RESULT)).enqueue()
    queue.drain(scheduled=False)
    assert queue.ran[-1].data["expiry"] == pytest.approx(queue.now() + 60, abs=20)


def test_canvases_nest(app: App, queue: Fake) -> None:
    inner = chain(app.add.call(1, RESULT), app.add.call(10, RESULT))
    batch = chain(
        app.start.call(5),
        parallel(app.start.call(RESULT), inner, parallel(app.start.call(7), app.add.call(RESULT, 100))),
        parallel(app.show.call("one", RESULT), app.show.call("two", RESULTS)),
        app.show.call("end", RESULTS),
    ).enqueue()
    queue.drain()
    results = [5, 16, [7, 105]]
    shown = [call for call in app.ran if call[0] == "show"]
    assert shown == [("show", "one", results), ("show", "two", results), ("show", "end", [None, None])]
    assert batch.status().success_at is not None


def test_a_chain_in_a_chain_passes_its_last_result_on(app: App, queue: Fake) -> None:
    first = chain(app.start.call(1), app.add.call(RESULT, 1), on_success=app.after.call("inner"))
    chain(first, app.add.call(RESULT, 10), chain(app.show.call(RESULT))).enqueue()
    queue.drain()
    assert [call for call in app.ran if call[0] != "inner"][1:] == [
        ("add", 1, 1),
        ("add", 2, 10),
        ("show", 12),
    ]
    assert [call[0] for call in app.ran].count("inner") == 1


def test_a_chain_stops_at_a_dead_step_and_goes_on_if_that_is_retried(app: App, queue: Fake) -> None:
    batch = chain(
        app.start.call(1), app.fail.call("kill"), app.show.call("end"), on_death=app.after.call("death")
    ).enqueue()
    finish(queue)
    assert app.ran == [("start", 1), ("death", batch.id)]
    status = batch.status()
    assert (status.pending, status.dead, status.complete_at) == (1, 1, None)
    with pytest.raises(JobFailedError, match=f"the chain {batch.id} is dead: a member is dead"):
        batch.result()
    dead = next(job for job in queue.ran if job.job_class == "fail")
    data = {**dead.data, "class": "start", "args": [2]}
    done = Ended(Ending.DONE, data, dead.jid, "default", "start", 1.0, result=b"2")
    effects = effects_of(done)
    assert [type(effect) for effect in effects] == [CountMember, Push]


def test_a_step_that_is_discarded_is_done_with_the_result_none(app: App, queue: Fake) -> None:
    batch = chain(
        app.start.call(1),
        app.fail.call("discard"),
        parallel(app.show.call("next", RESULT)),
        on_success=app.after.call("success"),
    ).enqueue()
    finish(queue)
    assert app.ran == [("start", 1), ("show", "next", None), ("success", batch.id)]
    assert (batch.status().total, batch.status().done, batch.result()) == (3, 3, [None])


def test_the_place_of_a_discarded_member_of_a_group_is_null(app: App, queue: Fake) -> None:
    parallel(app.start.call(1), app.fail.call("discard"), app.start.call(3)).then(
        app.show.call(RESULTS)
    ).enqueue()
    finish(queue)
    assert app.ran[-1] == ("show", [1, None, 3])


def test_an_empty_group_is_an_empty_list(app: App, queue: Fake) -> None:
    parallel([]).then(app.show.call(RESULTS)).enqueue()
    chain(app.start.call(1), parallel(), chain(parallel()), app.show.call("end", RESULT)).enqueue()
    queue.drain()
    assert [call for call in app.ran if call[0] == "show"] == [("show", []), ("show", "end", [])]


def test_an_empty_canvas_succeeds_at_once(app: App, queue: Fake) -> None:
    batch = parallel(on_success=app.after.call("success")).enqueue()
    queue.drain()
    assert app.ran == [("success", batch.id)]
    with pytest.raises(BadArgumentError, match="without a call"):
        chain().enqueue()


def test_a_canvas_is_a_member_of_the_batch_in_which_it_is_enqueued(app: App, queue: Fake) -> None:
    with app.worker.batch(on_success=app.after.call("success")) as outer:
        app.start.enqueue(1)
        inner = chain(app.start.call(2), app.start.call(RESULT)).enqueue()
        queue.assert_none()
    queue.drain()
    assert inner.status().parent == outer.id
    assert app.ran == [("start", 1), ("start", 2), ("start", 2), ("success", outer.id)]


def test_a_canvas_runs_inline_and_in_an_event_loop(app: App) -> None:
    async def enqueue() -> Batch:
        return await chain(app.start.call(1), app.show.call(RESULT)).aenqueue()

    with inline():
        asyncio.run(enqueue())
    assert app.ran == [("start", 1), ("show", 1)]


def test_a_result_that_is_too_large_for_the_jobs_that_follow_fails_its_job(app: App, queue: Fake) -> None:
    batch = chain(
        app.start.call("x" * 3_000_000), parallel(app.show.call(RESULT, n) for n in range(3))
    ).enqueue()
    with pytest.raises(BadResultError, match="the jobs that follow, with the result, are larger than"):
        queue.drain()
    assert queue.jobs == []
    assert (queue.ran[0].outcome or DONE).fate is Fate.RETRY
    assert (batch.status().done, batch.status().failed) == (0, 1)


def test_a_long_chain_is_flat(app: App, queue: Fake) -> None:
    limit = sys.getrecursionlimit()
    # Too low for a level of the run for each step.
    sys.setrecursionlimit(len(inspect.stack()) + 150)
    try:
        chain(app.start.call(0), *(app.add.call(1, RESULT) for _ in range(150))).enqueue()
        assert queue.drain() == 151
    finally:
        sys.setrecursionlimit(limit)
    assert app.ran[-1] == ("add", 1, 149)


@pytest.mark.parametrize(
    ("canvas", "error"),
    [
        (lambda app: chain(app.start.call(RESULT)), "no step is before it"),
        (lambda app: parallel(app.start.call(RESULTS)), "no step is before it"),
        (lambda app: chain(app.start.call(1), app.show.call(RESULTS)), r"no parallel\(…\) is before it"),
    ],
)
def test_a_placeholder_needs_what_it_stands_for(app: App, queue: Fake, canvas: Any, error: str) -> None:
    with pytest.raises(BadArgumentError, match=error):
        canvas(app).enqueue()
    queue.assert_none()


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda app: app.start.enqueue(RESULT),
        lambda app: app.start.enqueue([RESULTS]),
        lambda app: app.start.enqueue_in(5, {"a": [RESULT]}),
        lambda app: app.start.enqueue_bulk([[1], [{"a": (RESULTS,)}]]),
        lambda app: app.start.options(unique_for=60).enqueue(RESULT),
        lambda app: asyncio.run(app.start.aenqueue(RESULT)),
        lambda app: app.worker.enqueue("default", "start", [RESULT]),
        lambda app: app.worker.enqueue_bulk("default", "start", [[RESULT]]),
    ],
)
def test_a_placeholder_is_taken_by_a_call_alone(app: App, queue: Fake, enqueue: Any) -> None:
    with pytest.raises(BadArgumentError, match=r"\[0\].*Placeholder.*\nRESULT and RESULTS are for"):
        enqueue(app)
    queue.assert_none()
    app.start.enqueue({"pyworkers": "RESULT"})
    queue.drain()
    assert app.ran == [("start", {"pyworkers": "RESULT"})]


def test_a_call_refuses_values_that_are_nested_too_deep(app: App) -> None:
    endless: list[Any] = [RESULT]
    endless.append(endless)
    with pytest.raises(BadArgumentError, match="nested too deep"):
        app.start.call(endless)


def test_a_placeholder_may_stand_for_a_typed_argument(app: App, queue: Fake) -> None:
    @app.worker.job
    def typed(when: datetime, batch_id: str = "") -> None:
        app.ran.append(("typed", when.year, batch_id))

    batch = chain(app.start.call("2026-11-22T08:00:00Z"), typed.call(RESULT)).enqueue()
    queue.drain()
    assert app.ran[-1] == ("typed", 2026, batch.id)


def test_a_step_is_a_call(app: App) -> None:
    with pytest.raises(BadArgumentError, match="a step must be a call"):
        chain(app.start)  # type: ignore[arg-type]
    with pytest.raises(BadArgumentError, match="a step must be a call"):
        parallel([1, 2])  # type: ignore[list-item]
    assert isinstance(parallel(app.start.call(1)).then(app.show.call()), Chain)
    assert isinstance(parallel([app.start.call(1)], app.start.call(2)), Parallel)
    assert pyworkers.group is parallel
    assert repr(chain(parallel(app.start.call(1)))) == "chain(parallel(start.call(1)))"


def test_client_middleware_may_not_drop_a_step(app: App, queue: Fake) -> None:
    @app.worker.client_middleware
    def drops(draft: Any, call_next: Any) -> str:
        return "" if draft.job_class == "add" else str(call_next(draft))

    with pytest.raises(BadArgumentError, match="has dropped add"):
        chain(app.start.call(1), app.add.call(1, RESULT)).enqueue()
    parallel(app.start.call(1), app.add.call(1, 1)).then(app.show.call(RESULTS)).enqueue()
    queue.drain()
    assert app.ran[-1] == ("show", [1, None])


@pytest.mark.parametrize("then", ["x", [], {}, [7], [{"queue": 7}], [{"queue": "a b"}], [[7, None]], [{}]])
def test_an_invalid_rest_of_a_chain_pushes_nothing(then: Any) -> None:
    data = {"batch": "b", "then": then}
    done = effects_of(Ended(Ending.DONE, data, "j", "q", "C", 1.0))
    assert done == (CountMember("b", "j", "done"),)


def test_nothing_follows_a_step_that_is_not_done() -> None:
    data = {"batch": "b", "then": [{"queue": "q", "class": "C", "args": [], "jid": "k"}]}
    effects = effects_of(Ended(Ending.DELETED, data, "j", "q", "C", 1.0))
    assert effects == (CountMember("b", "j", "deleted"),)
    assert effects_of(Ended(Ending.RETRY, data, "j", "q", "C", 1.0)) == (CountMember("b", "j", "failed"),)


def test_a_job_knows_the_steps_after_it(app: App, queue: Fake) -> None:
    chain(app.start.call(1), app.add.call(1, RESULT), app.show.call()).enqueue()
    [first] = queue.jobs
    assert isinstance(first, EnqueuedJob)
    assert [step["class"] for step in first.data["then"]["steps"]] == ["add", "show"]
    assert all("enqueued_at" not in step for step in first.data["then"]["steps"])
    assert (
        first.data["then"]["steps"][0] | {"args": [1, None], "fill": {"RESULT": [[1]]}}
        == (first.data["then"]["steps"][0])
    )


LOOKALIKES = [{"pyworkers": name} for name in ("RESULT", "RESULTS", "BATCH_ID")]


def test_data_that_looks_like_a_placeholder_is_data(app: App, queue: Fake) -> None:
    both = parallel(app.start.call(LOOKALIKES), app.start.call([RESULT, LOOKALIKES]))
    steps = app.start.call(LOOKALIKES), both, app.show.call(LOOKALIKES, {"a": [RESULTS]})
    after = app.worker.batch(on_success=app.show.call(LOOKALIKES))
    chain(*steps).enqueue()
    with after:
        pass
    queue.drain()
    assert ("show", LOOKALIKES) in app.ran
    assert app.ran[-1] == ("show", LOOKALIKES, {"a": [[LOOKALIKES, [LOOKALIKES, LOOKALIKES]]]})


def following_args(then: Any, result: bytes = b"7") -> list[Any]:
    data = {"batch": "b", "then": then}
    effects = effects_of(Ended(Ending.DONE, data, "j", "q", "C", 1.0, result=result))
    return [decode(push.payload)["args"] for push in effects if isinstance(push, Push)]


def test_a_chain_of_the_last_release_has_its_placeholders_in_the_arguments() -> None:
    args = [{"pyworkers": "RESULT"}, [{"pyworkers": "RESULT"}, {"pyworkers": "X"}]]
    assert following_args([{"queue": "q", "args": args}]) == [[7, [7, {"pyworkers": "X"}]]]
    assert following_args({"v": 2, "steps": [{"queue": "q", "args": args}]}) == [args]
    assert following_args({"v": 3, "steps": [{"queue": "q", "args": args}]}) == []


@pytest.mark.parametrize("paths", [7, [7], [[9]], [[True]], [[0, "x"]], [["a"]], {"0": 1}, [[None]], [[[0]]]])
def test_invalid_paths_fill_nothing(paths: Any) -> None:
    job = {"queue": "q", "args": [1, {"a": 2}], "fill": {"RESULT": paths}}
    assert following_args({"v": 2, "steps": [job]}) == [[1, {"a": 2}]]


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([[{"queue": "q"}] * 8] * 5, "steps after a list of jobs"),
        ([[{"queue": "q"}] * 50_001], "pushes 50001 jobs at once; the limit is 50000"),
        ([{"queue": "q"}] * 1001, "has 1001 steps; the limit is 1000"),
    ],
)
def test_a_then_that_would_multiply_its_jobs_is_refused(is_old: bool, steps: list[Any], error: str) -> None:
    with pytest.raises(BadMessageError, match=error):
        following_args(steps if is_old else {"v": 2, "steps": steps})


def test_a_then_that_is_refused_leaves_the_other_effects_of_a_lost_job() -> None:
    then = [[{"queue": "q"}] * 8] * 5
    raw = encode({"class": "C", "jid": "j", "batch": "b", "then": then}).encode()
    assert effects_of_stored(raw, Ending.DISCARDED, 1.0) == (CountMember("b", "j", "done"),)


@pytest.mark.parametrize("is_old", [True, False])
def test_the_size_of_what_follows_is_computed_before_it_is_made(is_old: bool) -> None:
    args = [{"pyworkers": "RESULT"}] * 400
    job = {"queue": "q", "args": args, "fill": {"RESULT": [[n] for n in range(400)]}}
    with pytest.raises(BadResultError, match="are larger than 8388608 bytes"):
        following_args([job] if is_old else {"v": 2, "steps": [job]}, b'"' + b"x" * 3_000_000 + b'"')


@pytest.mark.parametrize(
    ("nested", "levels", "error"),
    [
        (lambda call, inner: chain(inner, call), 201, "nested deeper than 200 levels"),
        (lambda call, inner: parallel(inner), 201, "nested deeper than 200 levels"),
        (lambda call, inner: chain(call, inner), 150, "start with the steps after it is nested deeper"),
    ],
)
def test_a_canvas_that_no_server_could_read_is_refused(
    app: App, nested: Any, levels: int, error: str
) -> None:
    inner: Any = app.start.call(1)
    with fake(), pytest.raises(BadArgumentError, match=error):
        for _ in range(levels):
            inner = nested(app.start.call(1), inner)
        inner.enqueue()


def test_a_chain_has_a_thousand_steps_at_most(app: App) -> None:
    with pytest.raises(BadArgumentError, match="a chain of 1001 steps; the limit is 1000"):
        chain(*[app.start.call(1)] * 1001).enqueue()
