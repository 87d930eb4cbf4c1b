"""Typed arguments: what a job is given arrives as it was, and what does not fit is refused."""

from __future__ import annotations

import datetime as datetime_module
import subprocess
import sys
import traceback
import typing
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, Literal, NamedTuple, NewType, NotRequired, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, RootModel

from pyworkers import BadArgumentError, BadResultError, Client, Message, Worker
from pyworkers.errors import DeclarationError
from pyworkers.protocol import envelope
from pyworkers.protocol.call import RESULT
from pyworkers.protocol.draft import JobDraft
from pyworkers.protocol.message import Keywords
from pyworkers.testing import fake, inline
from pyworkers.typed import arguments
from pyworkers.typed.annotations import may_be_typed
from pyworkers.typed.arguments import Arguments, Returned, arguments_of


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@dataclass
class Item:
    name: str
    price: Decimal
    photo: bytes = b""


@dataclass
class Order:
    id: UUID
    items: list[Item]
    at: datetime
    color: Color | None = None
    tags: set[str] = field(default_factory=set)


class Address(typing.TypedDict):
    street: str
    since: date
    seen: NotRequired[datetime]


class User(BaseModel):
    name: str = Field(alias="userName")
    born: date
    friends: list[User] = []


class Blob(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Point(NamedTuple):
    x: int
    y: Decimal


class Weak(BaseModel):
    data: bytes


class Odd:
    """A class that pydantic does not know."""


@dataclass
class WithOdd:
    odd: Odd
    at: datetime


UserId = NewType("UserId", UUID)
Number = NewType("Number", int)
AN_ID = UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2026, 1, 2, 12, 30, 0, 5, tzinfo=timezone(timedelta(hours=5, minutes=30)))
TWICE = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
AN_ORDER = Order(AN_ID, [Item("a", Decimal("1.50"), b"\xff\x00")], NOON, Color.RED, {"x"})
A_USER = User(userName="ann", born=date(2000, 1, 2), friends=[User(userName="bob", born=date(2001, 1, 1))])

# Annotation, value, its JSON in the envelope.
EXACT: list[tuple[Any, Any, Any]] = [
    (datetime, NOON, "2026-01-02T12:30:00.000005+05:30"),
    (datetime, datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
    (datetime, TWICE.replace(fold=0), "2026-10-25T02:30:00+02:00"),
    (datetime, TWICE.replace(fold=1), "2026-10-25T02:30:00+01:00"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (time, time(1, 2, 3), "01:02:03"),
    (timedelta, timedelta(days=-1, microseconds=5), "-PT23H59M59.999995S"),
    (Decimal, Decimal("1.50"), "1.50"),
    (Decimal, Decimal("1E+30"), "1E+30"),
    (UUID, AN_ID, str(AN_ID)),
    (UserId, AN_ID, str(AN_ID)),
    (Color, Color.RED, "red"),
    (Level, Level.LOW, 1),
    (tuple, (1, "a"), [1, "a"]),
    (tuple[int, date], (1, date(2026, 1, 2)), [1, "2026-01-02"]),
    (set[int], {3}, [3]),
    (frozenset, frozenset({"a"}), ["a"]),
    (bytes, b"\xff\xfb", "__s="),
    (Item, Item("a", Decimal("2.0")), {"name": "a", "price": "2.0", "photo": ""}),
    (Address, {"street": "s", "since": date(2026, 1, 2)}, {"street": "s", "since": "2026-01-02"}),
    (User, A_USER, {"userName": "ann", "born": "2000-01-02", "friends": [
        {"userName": "bob", "born": "2001-01-01", "friends": []}]}),
    (Blob, Blob(data=b"\xff"), {"data": "_w=="}),
    (Point, Point(1, Decimal("0.1")), [1, "0.1"]),
    (date | None, None, None),
    (date | None, date(2026, 1, 2), "2026-01-02"),
    (list[date], [date(2026, 1, 2)], ["2026-01-02"]),
    (Sequence[date], [date(2026, 1, 2)], ["2026-01-02"]),
    (dict[str, list[Decimal]], {"a": [Decimal("1")]}, {"a": ["1"]}),
    (dict[UUID, Color], {AN_ID: Color.BLUE}, {str(AN_ID): "blue"}),
    (dict[bytes, int], {b"\xff": 1}, {"_w==": 1}),
    (dict[int, str], {1: "a"}, {"1": "a"}),
    ("list[dict[int, str]]", [{1: "a"}], [{"1": "a"}]),
    (Mapping[Number, str], {1: "a"}, {"1": "a"}),
    (list[Address], [{"street": "s", "since": date(2026, 1, 2)}], [{"street": "s", "since": "2026-01-02"}]),
    (Decimal | int, 5, 5),
    (Annotated[int, Field(gt=3)], 4, 4),
    (PositiveInt, 4, 4),
]  # fmt: skip


def declared(*annotations: Any, default: Any = ...) -> Callable[..., list[Any]]:
    """A function with these annotations that returns its arguments in a list."""
    names = [f"p{index}" for index in range(len(annotations))]
    parameters = ", ".join(names) + ("" if default is ... else "=default")
    scope: dict[str, Any] = {"default": default}
    exec(f"def function({parameters}): return [{', '.join(names)}]", scope)
    scope["function"].__annotations__ = dict(zip(names, annotations, strict=True))
    function: Callable[..., list[Any]] = scope["function"]
    return function


def sent_and_seen(function: Callable[..., list[Any]], *args: Any) -> tuple[list[Any], list[Any]]:
    """The arguments in the envelope of a job, and those that its function got."""
    worker, seen = Worker(), list[Any]()

    def keep(*given: Any) -> None:
        seen.extend(function(*given))

    keep.__wrapped__ = function  # type: ignore[attr-defined]
    job = worker.job(name="job")(keep)
    with fake() as queue:
        job.enqueue(*args)
        sent = queue.jobs[0].args
        queue.drain()
    return sent, seen


@pytest.mark.parametrize(("annotation", "value", "stored"), EXACT, ids=lambda one: str(one)[:40])
def test_a_value_is_sent_as_json_and_arrives_as_it_was(annotation: Any, value: Any, stored: Any) -> None:
    sent, seen = sent_and_seen(declared(annotation), value)
    assert sent == [stored]
    assert type(seen[0]) is type(value)
    if isinstance(value, datetime):
        assert (seen[0].replace(tzinfo=None), seen[0].utcoffset()) == (
            value.replace(tzinfo=None, fold=0), value.utcoffset()
        )  # fmt: skip
    else:
        assert seen == [value]


def test_nested_types_arrive_as_they_were() -> None:
    sent, seen = sent_and_seen(declared(dict[str, list[Order | None]]), {"all": [AN_ORDER, None]})
    assert seen == [{"all": [AN_ORDER, None]}]
    assert sent[0]["all"][0]["items"] == [{"name": "a", "price": "1.50", "photo": "_wA="}]


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (date, "2026-01-02", "2026-01-02"),
        (Decimal, 5, 5),
        (Decimal, 1.5, 1.5),
        (tuple[int, ...], [1, 2], [1, 2]),
        (bytes, "_w==", "_w=="),
        (bytes, "/w==", "/w=="),
        (Item, {"name": "a", "price": "2"}, {"name": "a", "price": "2"}),
        (tuple[date, ...], [date(2026, 1, 2)], ["2026-01-02"]),
        (list[date], (date(2026, 1, 2),), ["2026-01-02"]),
        (Item, {"name": "a", "price": Decimal("2")}, {"name": "a", "price": "2", "photo": ""}),
    ],
)
def test_the_json_of_a_value_and_what_pydantic_converts_are_accepted(
    annotation: Any, value: Any, stored: Any
) -> None:
    sent, seen = sent_and_seen(declared(annotation), value)
    assert sent == [stored]
    assert sent_and_seen(declared(annotation), seen[0])[1] == seen


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (date, "tomorrow", "args[0] does not fit date: "),
        (Decimal, Decimal("NaN"), "args[0] does not fit Decimal: "),
        (Color, "green", "args[0] does not fit Color: Input should be 'red' or 'blue'"),
        (Order, object(), "args[0] does not fit Order: "),
        (tuple[int, int], (1,), "args[0][1] does not fit"),
        (list[Item], [Item("a", "x")], "args[0][0]['price'] does not fit"),  # type: ignore[arg-type]
        (PositiveInt, -1, "args[0] does not fit"),
        (bytes, "no base64 \xff", "args[0] does not fit bytes"),
        (datetime, datetime(2026, 1, 1), "args[0] is a datetime without a time zone"),
        (datetime, "2026-01-01T00:00:00", "args[0] is a datetime without a time zone"),
        (list[datetime], [datetime(2026, 1, 1)], "args[0][0] is a datetime without a time zone"),
        (Address, {"street": "s", "since": date(2026, 1, 1), "seen": datetime(2026, 1, 1)},
         "args[0]['seen'] is a datetime without a time zone"),
        (datetime, NOON.astimezone(timezone(timedelta(seconds=21))), "args[0] would arrive as another"),
        (str | date, date(2026, 1, 1), "args[0] would arrive as another value"),
        (list[str | date], [date(2026, 1, 1)], "args[0][0] would arrive as another value"),
        (dict[str, float | Decimal], {"a": float("nan")}, "args[0]['a'] is nan"),
        (Weak, Weak(data=b"\xff"), "args[0] cannot be written as JSON by its type Weak"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_fails_in_the_caller(annotation: Any, value: Any, message: str) -> None:
    with fake() as queue, pytest.raises(BadArgumentError) as failed:
        Worker().job(name="job")(declared(annotation)).enqueue(value)
    assert str(failed.value).startswith(message)
    assert "input_value" not in str(failed.value)
    assert "ValidationError" not in "".join(traceback.format_exception(failed.value))
    assert queue.jobs == []


def test_a_value_that_arrives_wrong_fails_the_run() -> None:
    worker = Worker()

    @worker.job(name="job")
    def bill(number: int, price: Decimal) -> None:
        raise AssertionError("not reached")

    with fake() as queue:
        Client().enqueue("default", "job", [1, "4111-1111"])
        with pytest.raises(BadArgumentError) as failed:
            queue.drain(worker)
    assert str(failed.value).startswith("args[1] does not fit Decimal: ")
    assert "4111" not in str(failed.value)
    assert failed.value.__suppress_context__


def test_only_typed_parameters_are_checked() -> None:
    sent, seen = sent_and_seen(declared(int, date, str, Odd), "not an int", date(2026, 1, 2), 7, [None])
    assert sent == ["not an int", "2026-01-02", 7, [None]]
    assert seen == ["not an int", date(2026, 1, 2), 7, [None]]


@pytest.mark.parametrize(
    "annotation",
    [
        int, str, None, Any, object, list[int], dict[str, Any], str | None, list[dict[str, float]],
        "int", "str | None", "list[dict[str, Any]]", "Optional[int]", "typing.Any", Literal["a", 1],
        Callable[[datetime], None], Iterable[int], Collection[str], Final[int], Iterable, TypeVar("T"),
    ],
)  # fmt: skip
def test_a_job_of_plain_types_has_no_codec(annotation: Any) -> None:
    assert arguments_of(declared(annotation)) is None
    assert arguments_of(lambda anything: None) is None


@pytest.mark.parametrize(
    "annotation", [Mapping[str, date], Iterator[date], type[date], Literal["a"], NewType("Plain", int)]
)
def test_what_is_no_container_of_values_is_left_alone(annotation: Any) -> None:
    assert may_be_typed(annotation) is (annotation == Mapping[str, date])


Bound = TypeVar("Bound", bound=Address)
DAY = date(2026, 1, 2)


@pytest.mark.parametrize(
    ("annotation", "value", "stored", "arrives"),
    [
        (Iterable[date], [DAY], ["2026-01-02"], [DAY]),
        (dict[date, Iterable], {DAY: [1]}, {"2026-01-02": [1]}, {DAY: [1]}),  # type: ignore[type-arg]
        (dict[date, typing.Iterable], {DAY: [1]}, {"2026-01-02": [1]}, {DAY: [1]}),  # type: ignore[type-arg]
        (Iterable[date] | None, (DAY,), ["2026-01-02"], [DAY]),
        (deque[date], deque([DAY]), ["2026-01-02"], deque([DAY])),
        (
            Bound,
            {"street": "a", "since": DAY},
            {"street": "a", "since": "2026-01-02"},
            {"street": "a", "since": DAY},
        ),
        (Final[date], DAY, "2026-01-02", DAY),
        (Path, Path("/tmp"), "/tmp", Path("/tmp")),
        (
            dict[str, IPv4Address],
            {"a": IPv4Address("1.2.3.4")},
            {"a": "1.2.3.4"},
            {"a": IPv4Address("1.2.3.4")},
        ),
    ],
    ids=str,
)
def test_pydantic_is_asked_about_every_annotation(
    annotation: Any, value: Any, stored: Any, arrives: Any
) -> None:
    function = declared(annotation)
    types = arguments_of(function)
    assert types is not None
    assert types.prepare() == []
    assert sent_and_seen(function, value) == ([stored], [arrives])


@pytest.mark.parametrize(
    "annotation", [Collection[date], Literal[Color.RED], Odd, list[Odd], defaultdict], ids=str
)
def test_what_pydantic_cannot_honour_is_named_once(annotation: Any) -> None:
    types = arguments_of(declared(annotation))
    assert types is not None
    ignored = types.prepare()
    if annotation == Literal[Color.RED] and not ignored:
        pytest.skip("this release of pydantic honours it")
    assert [one.parameter for one in ignored] == ["p0"]


def test_a_frozen_clock_leaves_no_wrong_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    """As freezegun does it: other classes stand in ``datetime`` and where they were imported."""

    class FakeDate(date):
        __module__ = "freezegun.api"

    def job(day: date, days: list[date]) -> None: ...

    monkeypatch.setattr(datetime_module, "date", FakeDate)
    monkeypatch.setitem(job.__globals__, "date", FakeDate)
    types = arguments_of(job)
    assert types is not None
    args = [FakeDate(2026, 1, 2), [FakeDate(2026, 1, 2)]]
    assert types.to_json(args, "args") == ["2026-01-02", ["2026-01-02"]]
    monkeypatch.undo()
    assert types.to_json([DAY, [DAY]], "args") == ["2026-01-02", ["2026-01-02"]]
    assert types.from_json(["2026-01-02", []]) == [DAY, []]


FIRST_USE = """
import datetime

class FakeDate(datetime.date):
    __module__ = "freezegun.api"

real = datetime.date
datetime.date = FakeDate
from pyworkers import Worker
from pyworkers.testing import fake

worker, days = Worker(), []

def job(day: FakeDate) -> None:
    days.append(day)

declared = worker.job(job)
for number in range(2):
    with fake() as queue:
        declared.enqueue(real(2026, 1, 2))
        queue.drain()
    datetime.date = real
print(days == [real(2026, 1, 2)] * 2)
"""


def test_pydantic_may_be_imported_first_under_a_frozen_clock() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1:] == ["True"], done.stderr


def test_typed_varargs_defaults_and_names() -> None:
    worker, seen = Worker(), list[Any]()

    @worker.job
    def plan(day: date, until: date = date(2027, 1, 1), *more: Decimal) -> None:
        seen.append((day, until, more))

    day = date(2026, 1, 2)
    with fake() as queue:
        plan.enqueue(day)
        plan.enqueue(until=day, day=day)
        plan.enqueue(day, day, Decimal("1.0"), Decimal(2))
        plan.enqueue_bulk([(day,), ("2026-01-02", day)])
        plan.options(queue="slow", retry=3).enqueue_in(60, day)
        worker.enqueue("default", "plan", [day])
        assert [job.args for job in queue.jobs] == [
            ["2026-01-02"],
            ["2026-01-02", "2026-01-02"],
            ["2026-01-02", "2026-01-02", "1.0", "2"],
            ["2026-01-02"],
            ["2026-01-02", "2026-01-02"],
            ["2026-01-02"],
            ["2026-01-02"],
        ]
        queue.assert_enqueued(plan, day, day, Decimal("1.0"), Decimal(2))
        queue.drain()
    default = date(2027, 1, 1)
    assert seen == [
        (day, default, ()), (day, day, ()), (day, day, (Decimal("1.0"), Decimal(2))),
        (day, default, ()), (day, day, ()), (day, default, ()), (day, default, ()),
    ]  # fmt: skip
    with fake(), pytest.raises(BadArgumentError, match=r"^args_list\[1\]\[2\] does not fit Decimal"):
        plan.enqueue_bulk([(day,), (day, day, "x")])
    with fake(), pytest.raises(TypeError, match="missing a required argument"):
        plan.enqueue()  # type: ignore[call-arg]


def test_none_as_a_default_is_a_value() -> None:
    assert sent_and_seen(declared(date, default=None), None) == ([None], [None])


def test_inline_converts_too() -> None:
    worker, seen = Worker(), list[Any]()

    @worker.job
    async def later(order: Order) -> None:
        seen.append(order)

    with inline():
        later.enqueue(AN_ORDER)
    assert seen == [AN_ORDER]
    assert later.bind(AN_ORDER)[0]["id"] == str(AN_ID)


def test_client_middleware_gets_the_values_and_another_class_gets_json() -> None:
    worker, seen = Worker(), list[Any]()

    @worker.client_middleware
    def look(draft: JobDraft, call_next: Callable[[JobDraft], str]) -> str:
        seen.append(draft.args[0])
        if draft.args[0] == date(2027, 1, 2):
            return call_next(draft.replace(job_class="other", args=[draft.args[0].isoformat()]))
        return call_next(draft.with_extra(tenant=7))

    @worker.job
    def plan(day: date) -> None: ...

    with fake() as queue:
        plan.enqueue(date(2026, 1, 2))
        plan.enqueue(date(2027, 1, 2))
        with pytest.raises(BadArgumentError, match=r"args\[0\] does not fit date"):
            plan.options(tags=["x"]).enqueue(Odd())  # type: ignore[arg-type]
        assert [(job.job_class, job.args) for job in queue.jobs] == [
            ("plan", ["2026-01-02"]),
            ("other", ["2027-01-02"]),
        ]
    assert seen[:2] == [date(2026, 1, 2), date(2027, 1, 2)]


def test_a_typed_job_may_be_unique() -> None:
    worker = Worker()

    @worker.job(unique_for=60)
    def plan(day: date, *more: Order) -> None: ...

    day = date(2026, 1, 2)
    with fake() as queue:
        first = plan.enqueue(day, AN_ORDER)
        assert plan.enqueue(day, AN_ORDER) == worker.enqueue("default", "plan", [day, AN_ORDER]) == first
        assert plan.enqueue_bulk([(day,), ("2026-01-02",)])[0] != first
        assert [job.args[0] for job in queue.jobs] == ["2026-01-02"] * 2


class Labels(BaseModel):
    ids: set[int] = Field(alias="labelIds")


@dataclass
class Labelled:
    labels: Labels
    others: dict[str, list[frozenset[int]]]
    place: tuple[str, set[int]]


class Root(RootModel[set[int]]):
    pass


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.mark.parametrize(
    ("annotation", "holding", "written"),
    [
        (Root, Root, [0, 8]),
        (dict[str, Root], lambda ids: {"x": Root(ids)}, {"x": [0, 8]}),
        (deque[set[int]], lambda ids: deque([ids]), [[0, 8]]),
        (Open, lambda ids: Open.model_validate({"more": ids}), {"more": [0, 8]}),
    ],
)
def test_a_set_is_written_in_order_in_each_container(
    annotation: Any, holding: Callable[[set[int]], Any], written: Any
) -> None:
    # Of two ids with the same place in the table, the one that was added first comes first.
    for ids in ({0, 8}, {8, 0}):
        assert arguments.type_codec(annotation).to_json(holding(ids), "args[0]") == written


def test_equal_sets_are_the_same_unique_job() -> None:
    worker = Worker()

    @worker.job(unique_for=60)
    def label(ids: set[int], all_of_it: Labelled | None = None) -> None: ...

    def sets(*ids: int) -> tuple[set[int], Labelled]:
        # Of two ids with the same place in the table, the one that was added first comes first.
        found = set(ids)
        return found, Labelled(Labels(labelIds=found), {"x": [frozenset(ids)]}, ("y", found))

    assert list(sets(0, 8)[0]) != list(sets(8, 0)[0])
    with fake() as queue:
        assert label.enqueue(*sets(0, 8)) == label.enqueue(*sets(8, 0))
        assert label.enqueue({0, 8}) == label.enqueue({8, 0}) != label.enqueue({8, 1})
    assert queue.jobs[0].args == [
        [0, 8],
        {"labels": {"labelIds": [0, 8]}, "others": {"x": [[0, 8]]}, "place": ["y", [0, 8]]},
    ]


def test_a_result_takes_the_place_of_a_typed_argument() -> None:
    worker = Worker()

    @worker.job
    def plan(order: Order, day: date) -> None: ...

    call = plan.call(RESULT, date(2026, 1, 2))
    (sent,) = [envelope.decode(call.draft.job(call.args, 1.0).payload)["args"]]
    assert sent == [{"pyworkers": "RESULT"}, "2026-01-02"]
    with pytest.raises(BadArgumentError, match=r"args\[1\] does not fit date"):
        plan.call(RESULT, "x")  # type: ignore[arg-type]


def test_members_and_callbacks_of_a_batch_are_typed() -> None:
    worker, seen = Worker(), list[Any]()

    @worker.job
    def bill(order: Order) -> None:
        seen.append(order)

    @worker.job
    def finish(batch_id: str, day: date) -> None:
        seen.append(day)

    with fake() as queue:
        with worker.batch("orders", on_success=finish.call(day=date(2026, 1, 2))):  # type: ignore[call-arg]
            bill.enqueue(AN_ORDER)
        queue.drain()
    assert seen == [AN_ORDER, date(2026, 1, 2)]


# --- what cannot be evaluated or used -----------------------------------------------------------------------


def test_a_class_may_be_defined_after_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("app_of_this_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scope = vars(module)
    exec(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\nfrom datetime import date\nfrom pyworkers import Worker\n"
        "worker, seen = Worker(), []\n"
        "@worker.job\n"
        "def job(later: Later, many: list['Later']): seen.append((later, many))\n"
        "@dataclass\nclass Later:\n    day: date\n",
        scope,
    )
    later = scope["Later"](date(2026, 1, 2))
    with inline():
        scope["job"].enqueue(later, [later])
    assert scope["seen"] == [(later, [later])]


def test_an_annotation_that_cannot_be_used_is_ignored_and_named() -> None:
    function = declared("Missing", WithOdd, date)
    types = arguments_of(function)
    assert isinstance(types, Arguments)
    ignored = types.prepare()
    assert [one.parameter for one in ignored] == ["p0", "p1"]
    assert "Missing" in ignored[0].reason
    assert types.prepare() == ignored
    sent, seen = sent_and_seen(function, "a", {"odd": 1}, date(2026, 1, 2))
    assert sent == ["a", {"odd": 1}, "2026-01-02"]
    assert seen == ["a", {"odd": 1}, date(2026, 1, 2)]
    with (
        fake(),
        pytest.raises(BadArgumentError, match="carry\nits annotation cannot be used: NameError"),
    ):
        Worker().job(name="job")(function).enqueue(NOON, None, None)


def test_without_the_extra_nothing_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arguments, "find_spec", lambda name: None)
    assert sent_and_seen(declared(date, tuple), "2026-01-02", (1,)) == (
        ["2026-01-02", [1]],
        ["2026-01-02", [1]],
    )
    with fake(), pytest.raises(BadArgumentError) as failed:
        Worker().job(name="job")(declared(date)).enqueue(date(2026, 1, 2))
    assert str(failed.value) == (
        "args[0] is of type date, which JSON does not carry\n"
        "install the extra: pip install 'pyworkers-server[types]'"
    )
    with pytest.raises(DeclarationError, match=r"pyworkers-server\[types\]"):

        @Worker().process("q")
        def handle(message: Message[Order]) -> None: ...


def test_cron_arguments_are_typed() -> None:
    worker = Worker()

    def plan(day: date) -> None: ...

    worker.cron("@daily", args=[date(2026, 1, 2)])(worker.job(plan))
    assert worker.cron_entries[0].args == ("2026-01-02",)
    with pytest.raises(DeclarationError, match=r"cron of again: args\[0\] does not fit date"):
        worker.cron("@daily", args=["x"])(worker.job(name="again")(plan))


IMPORTS = """
import sys
from pyworkers import Worker
from pyworkers.testing import inline
worker = Worker()
@worker.job
def plain(a: int, b: "str | None" = None, *c: dict) -> None: ...
@worker.process("q")
def handle(message): ...
with inline():
    plain.enqueue(1)
print("pydantic" in sys.modules)
"""


def test_an_application_without_typed_jobs_never_imports_pydantic() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


# --- messages, results, ActiveJob ---------------------------------------------------------------------------


def one_message(annotation: Any, args: list[Any]) -> Any:
    """``message.args`` as a handler with the annotation gets it."""
    worker, seen = Worker(), list[Any]()

    def handle(message: Any) -> None:
        seen.append(message.args)

    handle.__annotations__["message"] = annotation
    worker.process("q")(handle)
    with fake() as queue:
        Client().enqueue("q", "Any", args)
        queue.drain(worker)
    return seen[0]


@pytest.mark.parametrize(
    ("annotation", "args", "expected"),
    [
        (Message, [1, "a"], [1, "a"]),
        (Message[tuple[int, date]], [1, "2026-01-02"], (1, date(2026, 1, 2))),
        (Message[list[date]], ["2026-01-02"], [date(2026, 1, 2)]),
        (Message[Point], [1, "0.1"], Point(1, Decimal("0.1"))),
        (Message[Item], [{"name": "a", "price": "1"}], Item("a", Decimal(1))),
        (Message[int], [7], 7),
        ("Message[date | None]", [None], None),
    ],
)
def test_a_handler_may_annotate_its_message(annotation: Any, args: list[Any], expected: Any) -> None:
    assert one_message(annotation, args) == expected


@pytest.mark.parametrize(
    ("annotation", "args", "message"),
    [
        (Message[tuple[int, date]], [1], r"args\[1\] does not fit"),
        (Message[Item], [{"name": "a"}], r"args\[0\]\['price'\] does not fit Item"),
        (Message[Item], [1, 2], "args has 2 values; the handler takes one"),
        (Message[int], ["x"], r"args\[0\] does not fit int"),
    ],
)
def test_a_message_that_does_not_fit_fails_the_run(annotation: Any, args: list[Any], message: str) -> None:
    with pytest.raises(BadArgumentError, match=message):
        one_message(annotation, args)


def test_an_annotation_of_a_message_that_cannot_be_used_is_an_error_of_the_declaration() -> None:
    with pytest.raises(DeclarationError, match="'handle': its annotation cannot be used: NameError"):
        one_message("Message[Missing]", [1])


def test_results_have_codecs() -> None:
    def export() -> list[Order]:
        return []

    types = Returned(export)
    stored = types.to_json([AN_ORDER])
    assert envelope.decode(f'{{"r":{envelope.encode(stored)}}}'.encode())["r"] == stored
    assert types.from_json(stored) == [AN_ORDER]
    with pytest.raises(BadArgumentError, match=r"^result does not fit"):
        types.to_json(7)
    plain = Returned(declared(int))
    anything = object()
    assert plain.to_json(anything) is plain.from_json(anything) is anything


def test_a_kept_result_is_written_by_its_annotation() -> None:
    worker = Worker()

    @worker.job(track=60)
    def order(number: int) -> Order:
        return AN_ORDER if number else number  # type: ignore[return-value]

    @worker.job(track=60)
    async def day() -> date:
        return date(2026, 1, 2)

    with fake() as queue:
        jobs = order.enqueue(1), day.enqueue()
        queue.drain()
        first, second = (worker.result(jid, timeout=1) for jid in jobs)
        order.enqueue(0)
        with pytest.raises(BadResultError, match=r"^result does not fit Order"):
            queue.drain()
        order.options(track=None).enqueue(0)
        queue.drain()
    assert (first["id"], second) == (str(AN_ID), "2026-01-02")


def test_keywords_of_an_active_job_are_converted_by_name() -> None:
    def bill(day: date, *, price: Decimal = Decimal(0), note: str = "") -> None: ...

    types = Arguments(bill)
    assert types.from_json([date(2026, 1, 2), Keywords(price="1.0", note=7)]) == [
        date(2026, 1, 2), {"price": Decimal("1.0"), "note": 7}
    ]  # fmt: skip


# --- round trips --------------------------------------------------------------------------------------------

OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)
VALUES = st.fixed_dictionaries(
    {
        "id": st.uuids(),
        "at": st.datetimes(timezones=OFFSETS),
        "day": st.dates(),
        "wait": st.timedeltas(),
        "price": DECIMALS,
        "data": st.binary(),
        "color": st.sampled_from(Color),
        "pair": st.tuples(st.integers(), st.text()),
        "tags": st.sets(st.text()),
        "by_day": st.dictionaries(st.dates(), st.one_of(st.none(), DECIMALS)),
    }
)  # fmt: skip


@dataclass
class Everything:
    id: UUID
    at: datetime
    day: date
    wait: timedelta
    price: Decimal
    data: bytes
    color: Color
    pair: tuple[int, str]
    tags: set[str]
    by_day: dict[date, Decimal | None]


EVERYTHING = Arguments(declared(list[Everything], *typing.get_type_hints(Everything).values()))


@given(VALUES)
def test_every_value_survives_the_round_trip(values: dict[str, Any]) -> None:
    args = [[Everything(**values)], *(values[name] for name in Everything.__annotations__)]
    text = envelope.encode_args(EVERYTHING.to_json(args, "args"), "args")
    stored = envelope.decode(f'{{"args":{text}}}'.encode())
    read = EVERYTHING.from_json(stored["args"])
    assert list(read) == args
    assert str(read[5]) == str(values["price"])
    assert read[2].utcoffset() == values["at"].utcoffset()
