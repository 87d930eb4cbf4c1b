"""Checkpoints without a server: when they are written, and the test support."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyworkers import Interrupted, Snooze, Worker, checkpoint
from pyworkers.errors import BadArgumentError, JobCancelled
from pyworkers.protocol.effects import MAX_BYTES as MOST_EFFECTS
from pyworkers.protocol.effects import DeleteIteration, Effect, StoreIteration, StoreValue, size_of
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.testing import fake
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Channel, Execution, current_execution
from pyworkers.worker.progress import MAX_BYTES, CheckpointNotes, encoded


class Clock:
    """Seconds that the test turns on."""

    def __init__(self) -> None:
        self.now = 100.0
        self.noted: list[Effect] = []
        self.notes = CheckpointNotes("j1", self.noted.append, lambda: self.now)

    def values(self) -> list[object]:
        return [
            json.loads(json.loads(effect.fields)["c"])
            for effect in self.noted
            if isinstance(effect, StoreIteration)
        ]


def test_at_most_one_value_a_second_is_written_and_the_last_one_at_the_end() -> None:
    clock = Clock()
    assert clock.notes.open(dict, "default") == "default"
    for step in range(30):
        clock.notes.save(step)
        clock.now += 0.125
    assert clock.values() == [0, 8, 16, 24]
    [last] = clock.notes.rest(final=False)
    assert isinstance(last, StoreIteration)
    assert json.loads(last.fields) == {"ex": "1", "c": "29", "rt": "3.750"}
    assert clock.notes.rest(final=True) == [DeleteIteration("j1")]


def test_a_value_is_kept_as_it_was_saved() -> None:
    clock = Clock()
    state = {"pages": [1]}
    clock.notes.save(state)
    state["pages"].append(2)
    clock.notes.save(state)
    state["pages"].append(3)
    with pytest.raises(BadArgumentError):
        clock.notes.save({4})
    [last] = clock.notes.rest(final=False)
    assert isinstance(last, StoreIteration)
    assert json.loads(json.loads(last.fields)["c"]) == {"pages": [1, 2]}


def test_runs_and_seconds_are_added_to_those_before() -> None:
    clock = Clock()
    assert clock.notes.open(lambda: {"ex": b"4", "rt": b"1.5", "c": b'{"page":7}'}, None) == {"page": 7}
    clock.now += 2
    clock.notes.save(8)
    [first] = clock.noted
    assert isinstance(first, StoreIteration)
    assert json.loads(first.fields) == {"ex": "5", "c": "8", "rt": "3.500"}
    assert clock.notes.rest(final=False) == []


def test_a_second_checkpoint_of_a_run_begins_where_the_first_one_is() -> None:
    clock = Clock()
    state = {"ex": b"4", "rt": b"1.5", "c": b"7"}
    assert clock.notes.open(lambda: state, 0) == 7
    clock.notes.save(8)
    clock.notes.save(9)  # in the same second: not written

    def read() -> dict[str, bytes]:
        raise AssertionError("read twice")

    assert clock.notes.open(read, 0) == 9
    clock.now += 2.0
    clock.notes.save(10)
    assert json.loads(clock.noted[-1].fields) == {"ex": "5", "c": "10", "rt": "3.500"}  # type: ignore[union-attr]


def test_without_a_value_nothing_is_written_or_deleted() -> None:
    notes = Clock().notes
    notes.open(dict, 0)
    assert notes.rest(final=False) == notes.rest(final=True) == []


@pytest.mark.parametrize(
    "state",
    [
        {"c": b"{"},
        {"c": b"\xff"},
        {"ex": b"\xff", "rt": b"nan"},
        {"rt": b"x", "c": b"1"},
        {"c": b"[" * 100_000},
    ],
    ids=lambda state: str(state)[:30],
)
def test_a_foreign_state_is_the_default(state: dict[str, bytes]) -> None:
    clock = Clock()
    assert clock.notes.open(lambda: state, "default") == "default"
    clock.notes.save(1)
    assert clock.values() == [1]


@pytest.mark.parametrize("value", [{1}, b"x", math.nan, {1: 2}, "\ud800", "x" * MAX_BYTES])
def test_a_value_that_cannot_be_written_is_refused(value: Any) -> None:
    with pytest.raises(BadArgumentError, match="value"):
        encoded(value)


def run_of(*, returns: bool) -> Execution:
    return Execution(
        Message("j1", "q", "Any", [], {}, b""), 7, Channel(lambda *_: None, lambda: returns), None
    )


def test_save_ends_a_job_that_is_to_continue_elsewhere() -> None:
    run = run_of(returns=True)
    run.begin(0.0)
    notes = run.checkpoint()
    with pytest.raises(Interrupted, match="continues elsewhere"):
        notes.save(7)
    assert run.rest(final=False) == []
    staying = run_of(returns=False)
    staying.begin(0.0)
    staying.checkpoint().save(7)


def test_save_raises_a_request_that_could_not_be_delivered_once() -> None:
    run = run_of(returns=False)
    run.begin(0.0)
    run.ask(JobCancelled("the job was cancelled"))
    notes = run.checkpoint()
    with pytest.raises(JobCancelled):
        notes.save(7)
    notes.save(8)


def test_the_mark_of_a_retried_job_deletes_its_value_wherever_it_ends() -> None:
    def ended(ending: Ending) -> tuple[Effect, ...]:
        return effects_of(Ended(ending, {"checkpoint": True}, "j1", "q", "Any", 1.0))

    assert ended(Ending.DELETED) == ended(Ending.DEAD) == (DeleteIteration("j1"),)
    assert ended(Ending.RETRY) == ended(Ending.GIVEN_BACK) == ()


worker = Worker()


@worker.job(queue="q")
def long(pages: int) -> int:
    at = checkpoint(0)
    for page in range(at.value, pages):
        at.save(page + 1)
        if page == 2 and at.value != pages:
            raise Snooze(1)
    return at.value


def test_a_value_for_which_the_effects_of_a_link_leave_no_room_is_left_out() -> None:
    app, bridge = Worker(), Bridge()

    @app.middleware
    def stores(message: Message, call_next: Callable[[Message], Outcome]) -> Outcome:
        room = MOST_EFFECTS - size_of([StoreValue("k", b"", 1)])
        return call_next(message).with_effects(StoreValue("k", bytes(room), 1))

    @app.job(name="job")
    def saves() -> None:
        current_execution().checkpoint().save(1)
        current_execution().checkpoint().save(2)

    chain = StepChain(app, app.lookup("default", "job"), Runtime(bridge, 25, time.time, random.Random(1)))
    try:
        outcome = chain.run(Execution(Message.parse(b'{"class":"job","args":[],"jid":"j1"}', "default", str)))
    finally:
        bridge.close()
    assert (outcome.fate, [type(effect) for effect in outcome.effects]) == (Fate.DONE, [StoreValue])


def test_outside_of_a_job_nothing_is_stored() -> None:
    assert long(2) == 2


def test_fake_keeps_the_value() -> None:
    with fake() as jobs:
        jid = long.enqueue(5)
        jobs.drain()
        assert jobs.iteration(jid)["c"] == b"3"
        assert jobs.drain() == 1
        assert jobs.iteration(jid) == {}


def test_an_async_job_reads_its_checkpoint_without_a_warning() -> None:
    worker = Worker()
    seen: list[int] = []

    @worker.job
    async def count() -> None:
        progress = checkpoint(0)
        await progress.asave(7)
        seen.append(progress.value)

    with fake() as jobs:
        count.enqueue()
        assert jobs.drain() == 1
    assert seen == [7]
