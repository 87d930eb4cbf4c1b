"""ActiveJob's arguments: the markers of Rails become Python's values, and what is odd stays as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pyworkers.errors import BadMessageError
from pyworkers.functions import call_with_args
from pyworkers.protocol.message import Message

WRAPPER = "Sidekiq::ActiveJob::Wrapper"
PARIS = ZoneInfo("Europe/Paris")


def parse(*arguments: Any, wrapper: str = WRAPPER) -> Message:
    job = {"job_class": "Mail", "arguments": list(arguments)}
    raw = json.dumps({"class": wrapper, "wrapped": "Mail", "jid": "j", "args": [job]}).encode()
    return Message.parse(raw, "q", lambda: "made")


def marked(serializer: str, **fields: Any) -> dict[str, Any]:
    return {"_aj_serialized": f"ActiveJob::Serializers::{serializer}Serializer", **fields}


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([1, "a", None, True, 2.5], [1, "a", None, True, 2.5]),
        (marked("Symbol", value="now"), "now"),
        (marked("Module", value="Shop::User"), "Shop::User"),
        ({"_aj_globalid": "gid://shop/User/7"}, "gid://shop/User/7"),
        ({"a": {"b": 1, "_aj_symbol_keys": ["b"]}, "_aj_symbol_keys": []}, {"a": {"b": 1}}),
        ({"a": 1, "_aj_hash_with_indifferent_access": True}, {"a": 1}),
        (marked("Date", value="2024-02-29"), date(2024, 2, 29)),
        (marked("Time", value="2024-07-01T10:00:00.123456789Z"), datetime(2024, 7, 1, 10, 0, 0, 123456, UTC)),
        (
            marked("DateTime", value="2024-07-01T12:00:00.000000000+02:00"),
            datetime(2024, 7, 1, 10, tzinfo=UTC),
        ),
        (
            marked("TimeWithZone", value="2024-01-01T12:00:00.000000000+01:00"),
            datetime(2024, 1, 1, 11, tzinfo=UTC),
        ),
        (marked("BigDecimal", value="0.1e-1"), Decimal("0.01")),
        (marked("Duration", value=5400.5, parts=[]), timedelta(seconds=5400.5)),
        (marked("Duration", value="90.0", parts=[]), timedelta(seconds=90)),
        (marked("Range", begin=1, end=3, exclude_end=False), range(1, 4)),
        (marked("Range", begin=1, end=3, exclude_end=True), range(1, 3)),
        (
            marked("Range", begin=marked("Date", value="2024-01-01"), end=None, exclude_end=False),
            {"begin": date(2024, 1, 1), "end": None, "exclude_end": False},
        ),
        ([{"at": [marked("Symbol", value="x")], "_aj_symbol_keys": ["at"]}], [{"at": ["x"]}]),
    ],
)
def test_a_marked_value_becomes_pythons(stored: object, expected: object) -> None:
    for wrapper in (WRAPPER, "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"):
        [found] = parse(stored, wrapper=wrapper).args
        assert (type(found), found) == (type(expected), expected)


def test_a_time_with_the_name_of_its_zone_has_that_zone() -> None:
    [found] = parse(
        marked("TimeWithZone", value="2024-03-30T12:00:00.000000000+01:00", time_zone="Europe/Paris")
    ).args
    assert found == datetime(2024, 3, 30, 12, tzinfo=PARIS)
    assert (found + timedelta(days=1)).utcoffset() == timedelta(hours=2)


@pytest.mark.parametrize("zone", ["No/Such", "Europe", "../../etc/passwd", "\ud800", ""])
def test_a_time_of_an_unknown_zone_keeps_its_offset(zone: str) -> None:
    [found] = parse(marked("TimeWithZone", value="2024-01-01T12:00:00+01:00", time_zone=zone)).args
    assert (found.hour, found.utcoffset()) == (12, timedelta(hours=1))


@pytest.mark.parametrize(
    "stored",
    [
        {"_aj_serialized": "MoneySerializer", "cents": 5, "at": marked("Date", value="2024-02-29")},
        {"_aj_serialized": ["Symbol"], "value": "x"},
        marked("Symbol"),
        marked("Symbol", value=5),
        marked("Date", value="yesterday"),
        marked("Time", value="2024-07-01T12:00:00"),
        marked("Time", value=5),
        marked("DateTime", value="12024-07-01T12:00:00Z"),
        marked("TimeWithZone", value="2024-01-01T12:00:00+01:00", time_zone=5),
        marked("BigDecimal", value="many"),
        marked("Duration", value=1e300),
        marked("Duration", value="3/2"),
        marked("Duration", value=None),
        marked("Range", begin=1),
    ],
)
def test_what_is_unknown_or_wrong_stays_as_it_is(stored: dict[str, Any]) -> None:
    assert parse(stored).args == [stored]


def test_keywords_are_given_by_name_and_stay_in_the_list() -> None:
    keywords = {"subject": "hi", "at": marked("Date", value="2024-02-29"), "_aj_ruby2_keywords": ["subject"]}
    message = parse(7, keywords)
    expected = {"subject": "hi", "at": date(2024, 2, 29)}
    assert message.args == [7, expected]

    def send(user_id: int, subject: str, *, at: date, copy: bool = False) -> None:
        calls.append((user_id, subject, at, copy))

    calls: list[Any] = []
    call_with_args(send)(message)
    assert calls == [(7, "hi", date(2024, 2, 29), False)]
    with pytest.raises(TypeError, match="unexpected keyword argument 'subject'"):
        call_with_args(lambda user_id, at: None)(message)


@pytest.mark.parametrize(
    "arguments",
    [
        [7, {"subject": "hi", "_aj_symbol_keys": ["subject"]}],
        [{"subject": "hi", "_aj_ruby2_keywords": ["subject"]}, 7],
        [[{"subject": "hi", "_aj_ruby2_keywords": ["subject"]}]],
        [],
    ],
)
def test_other_hashes_are_given_by_place(arguments: list[Any]) -> None:
    message = parse(*arguments)
    given: list[Any] = []
    call_with_args(lambda *args, **kwargs: given.append((list(args), kwargs)))(message)
    assert given == [(message.args, {})]
    assert "_aj" not in str(message.args)


@pytest.mark.parametrize(
    ("stored", "args"), [(None, []), (7, [7]), ({"a": marked("Symbol", value="b")}, [{"a": "b"}])]
)
def test_arguments_that_are_no_list(stored: object, args: list[Any]) -> None:
    job = {"job_class": "Mail", "arguments": stored}
    raw = json.dumps({"class": WRAPPER, "args": [job]}).encode()
    assert Message.parse(raw, "q", lambda: "made").args == args


def test_the_envelope_stays_as_it_came() -> None:
    message = parse(marked("Symbol", value="now"))
    assert message.data == json.loads(message.raw)
    assert message.data["args"][0]["arguments"] == [marked("Symbol", value="now")]


def test_the_markers_mean_nothing_outside_of_the_wrapper() -> None:
    args = [marked("Symbol", value="now"), {"a": 1, "_aj_ruby2_keywords": ["a"]}]
    raw = json.dumps({"class": "Mail", "args": args}).encode()
    message = Message.parse(raw, "q", lambda: "made")
    assert message.args == args
    given: list[Any] = []
    call_with_args(lambda *args: given.extend(args))(message)
    assert given == args


def test_arguments_as_deep_as_a_job_may_be_are_read_and_deeper_ones_are_refused() -> None:
    def nested(depth: int) -> Any:
        found: Any = 1
        for level in range(depth):
            found = [found] if level % 2 else {"a": found, "_aj_symbol_keys": ["a"]}
        return found

    assert parse(nested(450)).args
    with pytest.raises(BadMessageError, match="deep"):
        parse(nested(700))


def test_only_a_worker_that_reads_an_active_job_has_the_module_in_memory() -> None:
    code = f"""
import sys
from pyworkers.protocol.message import Message
import pyworkers.worker.process
def parse(raw):
    Message.parse(raw, "q", str)
    print("pyworkers.protocol.active_job" in sys.modules)
parse(b'{{"class":"A","args":[1]}}')
parse(b'{{"class":"{WRAPPER}","wrapped":"A","args":[{{"arguments":[1]}}]}}')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
