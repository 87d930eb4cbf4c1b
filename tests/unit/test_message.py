"""Message: what stored bytes mean."""

from __future__ import annotations

import contextvars
import json
from typing import Any

import pytest

from pyworkers.errors import BadMessageError
from pyworkers.protocol import message as messages
from pyworkers.protocol.message import Message, as_count, current_message, set_run
from pyworkers.worker.execution import Execution


def parse(data: dict[str, Any], queue: str = "q") -> Message:
    return Message.parse(json.dumps(data).encode(), queue, lambda: "made")


def test_a_job_of_sidekiq() -> None:
    raw = (
        b'{"retry":true,"queue":"default","class":"Add","args":[1,2],"jid":"b4a577edbccf1d805744efa9",'
        b'"created_at":1795225197.5,"enqueued_at":1795225198.25}'
    )
    found = Message.parse(raw, "default", lambda: "made")
    assert (found.jid, found.queue, found.job_class, found.args) == (
        "b4a577edbccf1d805744efa9",
        "default",
        "Add",
        [1, 2],
    )
    assert (found.attempt, found.retry_count, found.crash_count, found.enqueued_at) == (
        0,
        None,
        0,
        1795225198.25,
    )
    assert found.raw == raw
    assert found.data["created_at"] == 1795225197.5


def test_a_job_without_an_id_gets_one() -> None:
    assert [parse(data).jid for data in ({}, {"jid": None}, {"jid": ""}, {"jid": "x"})] == ["made"] * 3 + [
        "x"
    ]


def test_the_queue_is_the_one_it_was_fetched_from() -> None:
    assert parse({"queue": "ns:other"}, "here").queue == "here"


@pytest.mark.parametrize(
    ("data", "args"),
    [
        ({}, []),
        ({"args": None}, []),
        ({"args": {"a": 1}}, [{"a": 1}]),
        ({"args": 7}, [7]),
        ({"args": [7]}, [7]),
    ],
)
def test_arguments_are_always_a_list(data: dict[str, Any], args: list[Any]) -> None:
    assert parse(data).args == args


@pytest.mark.parametrize(
    ("retry_count", "attempt"),
    [
        (None, 0),
        (0, 1),
        (4, 5),
        ("4", 5),
        (4.0, 5),
        (True, 0),
        (-1, 0),
        ("x", 0),
        (4.5, 0),
        (10**30, 100_001),
    ],
)
def test_attempt_counts_the_failures_so_far(retry_count: object, attempt: int) -> None:
    assert parse({"retry_count": retry_count}).attempt == attempt


@pytest.mark.parametrize("data", [{"class": 5}, {"jid": 5}, {"class": ["x"]}])
def test_wrong_types_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(BadMessageError, match="not a string"):
        parse(data)


@pytest.mark.parametrize(
    "wrapper", ["ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"]
)
def test_an_active_job_is_unwrapped(wrapper: str) -> None:
    inner = {"job_class": "SendMail", "arguments": [1, "x"]}
    found = parse({"class": wrapper, "wrapped": "SendMail", "args": [inner]})
    assert (found.job_class, found.args) == ("SendMail", [1, "x"])
    assert parse({"class": wrapper, "args": [inner]}).job_class == "SendMail"


def test_an_active_job_without_its_job_is_refused() -> None:
    with pytest.raises(BadMessageError, match="ActiveJob wrapper"):
        parse({"class": "Sidekiq::ActiveJob::Wrapper", "args": []})


def test_replace_keeps_what_redis_holds() -> None:
    found = parse({"args": [1]})
    assert (found.replace(args=[2]).args, found.replace(args=[2]).raw) == ([2], found.raw)


def test_the_current_message_is_that_of_the_context() -> None:
    def inside() -> Message:
        set_run(Execution(found))
        return current_message()

    found = parse({})
    assert contextvars.copy_context().run(inside) is found
    with pytest.raises(LookupError, match="no job runs here"):
        contextvars.Context().run(current_message)


@pytest.mark.parametrize(
    ("value", "count"),
    [(3, 3), ("3", 3), (3.0, 3), ("٣", None), ("9" * 5000, 100_000), (float("nan"), None), ([], None)],
)
def test_as_count(value: object, count: int | None) -> None:
    assert as_count(value) == count
    assert messages.as_count(False) is None
