"""Drafts: what a producer may ask for, and the bytes that come of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers import AsyncClient, Client, Worker
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import draft as drafts
from pyworkers.protocol import envelope, options
from pyworkers.protocol.draft import draft, moment, seconds
from pyworkers.protocol.portions import portions

NOW = 1_795_225_197.5


def test_large_jobs_are_sent_in_several_parts() -> None:
    jobs = [drafts.PushedJob("q", b"x" * size, str(size)) for size in (10 << 20, 7 << 20, 1, 2, 3)]
    assert [[job.jid for job in part] for part in drafts.parts_of(jobs, 2)] == [
        [str(10 << 20), str(7 << 20)],
        ["1", "2"],
        ["3"],
    ]
    assert drafts.parts_of(jobs[2:], 3) == [jobs[2:]]
    assert drafts.parts_of([], 3) == []


def test_a_bulk_enqueue_sends_large_jobs_in_several_calls() -> None:
    calls: list[int] = []

    class Counting(Client):
        def push(self, jobs: list[drafts.PushedJob]) -> Any:
            calls.append(len(jobs))
            return {job.jid: "other" for job in jobs[:1]}

    jids = Counting("redis://127.0.0.1:1").enqueue_bulk("q", "Add", [["x" * (6 << 20)]] * 4)
    assert (calls, [jid == "other" for jid in jids]) == ([3, 1], [True, False, False, True])


def payload(
    args: Any = (1, 2), at: float | None = None, retry: bool | int | None = None, **options: Any
) -> str:
    return draft("mail", "Add", retry, options, at).job(args, NOW).payload.decode()


def test_a_job_for_now() -> None:
    assert payload(jid="j1") == (
        '{"queue":"mail","class":"Add","args":[1,2],"jid":"j1",'
        '"created_at":1795225197.5,"enqueued_at":1795225197.5}'
    )


@pytest.mark.parametrize("expires_in", [600, 600.0, timedelta(minutes=10)])
def test_the_expiry_counts_from_the_time_when_the_job_is_due(expires_in: Any) -> None:
    def expiry(at: float | None) -> float:
        found: float = json.loads(payload(at=at, expires_in=expires_in))["expiry"]
        return found

    assert (expiry(None), expiry(NOW + 60)) == (NOW + 600, NOW + 660)
    assert "expires_in" not in payload(expires_in=expires_in)
    jobs = draft("mail", "Add", None, {"expires_in": expires_in}).jobs([(1,), (2,)], NOW)
    assert [json.loads(job.payload)["expiry"] for job in jobs] == [NOW + 600] * 2


@pytest.mark.parametrize("expires_in", [0, -1, "10m", True, float("nan"), float("inf"), timedelta(0)])
def test_what_is_no_time_to_expire_in(expires_in: Any) -> None:
    with pytest.raises(BadArgumentError, match="expires_in must be seconds above 0 and up to 1e"):
        payload(expires_in=expires_in)


def test_the_field_expiry_is_no_option() -> None:
    with pytest.raises(BadArgumentError, match="expiry is not an option here: use expires_in"):
        payload(expiry=NOW)
    with pytest.raises(BadArgumentError, match="pyworkers writes it"):
        payload(extra={"expiry": NOW})


def test_a_job_for_later_has_neither_at_nor_enqueued_at() -> None:
    job = draft("mail", "Add", 3, {"tags": ("a",), "extra": {"x": None}, "jid": "j1"}, NOW + 60).job([], NOW)
    assert job.payload.decode() == (
        '{"retry":3,"queue":"mail","class":"Add","args":[],"tags":["a"],"x":null,"jid":"j1",'
        '"created_at":1795225197.5}'
    )
    assert (job.queue, job.jid, job.at) == ("mail", "j1", NOW + 60)


def test_a_whole_second_is_written_as_a_float() -> None:
    assert b'"created_at":1795225197.0,' in draft("q", "A", None, {}).job((), 1795225197.0).payload


def test_each_job_has_its_own_jid() -> None:
    plan = draft("q", "A", None, {})
    jobs = [plan.job((), NOW), plan.job((), NOW), *plan.jobs([(), (), ()], NOW)]
    assert len({job.jid for job in jobs}) == 5
    assert all(re.fullmatch("[0-9a-f]{24}", job.jid) for job in jobs)
    assert [json.loads(job.payload)["jid"] for job in jobs] == [job.jid for job in jobs]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('aé"\\'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(json_values, max_size=4))
def test_arguments_arrive_as_they_were_given(args: list[Any]) -> None:
    assert json.loads(payload(args))["args"] == args


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from([0, 1, 1.0, -0.0, 1e300, 10**400, '\u2028\x7f\x00"\\/é𝄞'])
)


@given(st.lists(scalars, max_size=4))
def test_scalars_are_written_as_the_encoder_writes_them(args: list[Any]) -> None:
    assert f'"args":{envelope.encode(args)},' in payload(args)


@pytest.mark.parametrize("client", [Client(), Worker(), AsyncClient()])
@pytest.mark.parametrize(
    ("method", "given", "hint"),
    [
        ("enqueue", ("q", "C", 7), "[a, b]"),
        ("enqueue_in", (5, "q", "C", 7), "[a, b]"),
        ("enqueue_at", (NOW, "q", "C", 7), "[a, b]"),
        ("enqueue_bulk", ("q", "C", [7, 8]), "[[a, b], [c, d]], a list for each job"),
    ],
)
async def test_arguments_that_are_not_in_a_list_are_an_error_that_shows_the_list(
    client: Any, method: str, given: tuple[Any, ...], hint: str
) -> None:
    with pytest.raises(BadArgumentError, match="not a list or tuple of arguments") as caught:
        await getattr(client, method)(*given)
    assert caught.value.hint == f"write {hint}"


def test_tuples_are_written_as_lists() -> None:
    assert '"args":[1,[2,[3]]],' in payload((1, (2, (3,))))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("text", "args is of type str, not a list or tuple"),
        ({"a": 1}, "args is of type dict, not a list or tuple"),
        ({1}, "args is of type set, not a list or tuple"),
        (iter([1]), "args is of type list_iterator, not a list or tuple"),
        (None, "args is of type NoneType, not a list or tuple"),
        ([1, float("nan")], "args[1] is nan"),
        (["\ud800"], "args[0] holds a lone surrogate"),
        ([{1: 2}], "args[0] has the key 1"),
        ([[b"x"]], "args[0][0] is of type bytes"),
        ([{"a": datetime(2026, 1, 1)}], "args[0]['a'] is of type datetime"),
        ([10**5000], "args[0] is an integer of more than 4,300 digits"),
    ],
)
def test_bad_arguments_are_refused_with_their_path(args: Any, message: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        payload(args)
    assert caught.value.message.startswith(message)


def test_a_job_that_no_worker_would_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MAX_BYTES", 200)
    payload(["x"])
    with pytest.raises(BadArgumentError, match=r"args: a job of \d+ bytes; the limit is 200"):
        payload(["x" * 100])


def test_in_bulk_the_path_begins_with_the_place_in_the_list() -> None:
    with pytest.raises(BadArgumentError, match=r"args_list\[1001\]\[0\] is of type set"):
        draft("q", "A", None, {}).jobs([[1], [{2}]], NOW, start=1000)


def test_one_jid_cannot_be_given_to_many() -> None:
    with pytest.raises(BadArgumentError, match="jid"):
        draft("q", "A", None, {"jid": "x"}).jobs([[1]], NOW)


@pytest.mark.parametrize(
    ("queue", "job_class", "message"),
    [
        ("a b", "Add", "queue 'a b' cannot be a queue: a queue name has 1 to 128 characters"),
        (5, "Add", "queue 5 cannot be a queue"),
        ("q", "", "'' cannot be a job class"),
        ("q", "A|B", "'A|B' cannot be a job class"),
        ("q", 5, "5 cannot be a job class"),
        ("q", "\ud800", "job_class holds a lone surrogate"),
    ],
)
def test_queue_and_class_are_checked(queue: Any, job_class: Any, message: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        draft(queue, job_class, None, {})
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    "options",
    [
        {"retry": -1},
        {"retry": "x"},
        {"retry": 1.5},
        {"tags": "a"},
        {"tags": [1]},
        {"retry_for": 1e9 + 1},
        {"retry_for": True},
        {"retry_queue": "a b"},
        {"retry_queue": None},
        {"backtrace": "yes"},
        {"dead": 1},
        {"timeout": 0},
        {"timeout": float("inf")},
        {"jid": ""},
        {"jid": 5},
        {"custom": {1}},
        {"custom": float("nan")},
        {"args": []},
        {"class": "x"},
        {"queue": "x"},
        {"at": 1},
        {"created_at": 1},
        {"enqueued_at": 1},
        {"failed_at": 1},
        {"retry_count": 1},
    ],
)
def test_options_that_are_refused(options: dict[str, Any]) -> None:
    others = dict(options)
    with pytest.raises(BadArgumentError):
        draft("q", "A", others.pop("retry", None), others)


@pytest.mark.parametrize(
    "options",
    [
        {
            "tags": ["a"],
            "retry_for": 1e9,
            "retry_queue": "slow",
            "backtrace": 10,
            "dead": False,
            "timeout": 0.5,
            "retry_max": 5,
        },
    ],
)
def test_options_land_in_the_envelope(options: dict[str, Any]) -> None:
    data = json.loads(payload(**options))
    assert {name: data[name] for name in options} == options
    assert list(data)[:3] == ["queue", "class", "args"]


def test_fields_of_ones_own_land_beside_the_others() -> None:
    extra = {"custom": {"nested": [1, (2,)]}, "locale": "fr", "bid": None}
    data = json.loads(payload(tags=["a"], extra=extra, jid="j1"))
    assert {name: data[name] for name in extra} == {
        "custom": {"nested": [1, [2]]},
        "locale": "fr",
        "bid": None,
    }
    assert (data["tags"], data["jid"], "extra" in data) == (["a"], "j1", False)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"timeot": 3}, "timeot is not an option: did you mean timeout?", 'extra={"timeot": …}'),
        ({"rety": 3}, "rety is not an option: did you mean retry?", ""),
        ({"queu": "a"}, "queu is not an option: did you mean queue?", ""),
        ({"tenant": 7}, "tenant is not an option", 'a field of your own goes into extra={"tenant": …}'),
        ({"class": "x"}, "class is not an option: it is written by pyworkers itself", ""),
        ({"delay": 5}, "delay is not an option here: use enqueue_in", ""),
        ({"countdown": 5}, "countdown is not an option here: use enqueue_in", ""),
        ({"eta": 5}, "eta is not an option here: use enqueue_at", ""),
        ({"kwargs": {}}, "kwargs is not an option here: its values are in args, in the order of", ""),
        ({"depends_on": "x"}, "depends_on is not an option here: use chain(…)", ""),
        ({"task_id": "x"}, "task_id is not an option: did you mean jid?", "a field of your own"),
        ({"ttl": 5}, "ttl is not an option: did you mean expires_in?", "a field of your own"),
        ({"concurrency": 5}, "concurrency is not an option here: the decorator of the job takes it", ""),
        ({"extra": [("a", 1)]}, "extra must be a dict with fields of your own", ""),
        ({"extra": {"jid": "x"}}, "extra['jid'] is not a field of your own: it is the option jid=…", ""),
        ({"extra": {"timeout": 3}}, "extra['timeout'] is not a field of your own", ""),
        ({"extra": {"extra": 3}}, "extra['extra'] is not a field of your own", ""),
        ({"extra": {"class": "x"}}, "extra['class'] is not a field of your own: pyworkers writes it", ""),
        ({"extra": {"args": []}}, "extra['args'] is not a field of your own", ""),
        ({"extra": {"queue": "q"}}, "extra['queue'] is not a field of your own", ""),
        ({"extra": {"error_class": "x"}}, "extra['error_class'] is not a field of your own", ""),
        ({"extra": {"a": [{1}]}}, "extra['a'][0] is of type set, which JSON does not carry", ""),
        ({"extra": {1: 2}}, "extra has the key 1; JSON keys are strings", ""),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(
    options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(BadArgumentError) as caught:
        draft("mail", "Add", None, options)
    assert caught.value.message.startswith(message)
    assert hint in caught.value.hint


def test_the_table_of_options_is_what_a_type_checker_sees() -> None:
    assert {*options.EnqueueOptions.__annotations__, "retry"} == set(options.OPTIONS)


@pytest.mark.parametrize("retry", [True, False, 0, 7])
def test_retry_comes_first_and_is_absent_unless_it_is_said(retry: bool | int) -> None:
    data = json.loads(payload(retry=retry))
    assert next(iter(data.items())) == ("retry", retry)
    assert type(data["retry"]) is type(retry)
    assert "retry" not in json.loads(payload())


@pytest.mark.parametrize(
    ("delay", "at", "due"),
    [
        (None, None, None),
        (0, None, None),
        (60, None, NOW + 60),
        (0.25, None, NOW + 0.25),
        (timedelta(minutes=1), None, NOW + 60),
        (None, NOW, None),
        (None, NOW - 5, None),
        (None, NOW + 5, NOW + 5),
        (None, datetime(2030, 1, 1, tzinfo=UTC), 1893456000.0),
    ],
)
def test_the_moment_of_a_job(delay: Any, at: Any, due: float | None) -> None:
    assert moment(delay, at, NOW) == due


@pytest.mark.parametrize(
    ("delay", "at"),
    [(1, 1), (-1, None), (float("nan"), None), (float("inf"), None), (1e300, None), (None, "x")],
)
def test_moments_that_are_refused(delay: Any, at: Any) -> None:
    with pytest.raises(BadArgumentError):
        moment(delay, at, NOW)


@pytest.mark.parametrize("delay", [None, True, "5", timedelta(seconds=-1), 10**400])
def test_what_is_no_delay(delay: Any) -> None:
    with pytest.raises(BadArgumentError, match="is not a delay"):
        seconds(delay)


def test_a_time_for_a_delay_and_a_delay_for_a_time_are_errors_that_name_the_other_method() -> None:
    with pytest.raises(BadArgumentError, match=r"is not a delay: .*\na time is for enqueue_at, or at=…$"):
        Client().enqueue_in(datetime.now(UTC), "q", "C")  # type: ignore[arg-type]
    with pytest.raises(BadArgumentError, match=r"is not a time: .*\na delay is for enqueue_in, or delay=…$"):
        Client().enqueue_at(timedelta(minutes=5), "q", "C")  # type: ignore[arg-type]


def test_batches_take_no_more_than_they_give() -> None:
    taken: list[int] = []

    def given() -> Iterator[int]:
        for n in range(5):
            taken.append(n)
            yield n

    parts = iter(portions(given(), 2))
    assert next(parts) == [0, 1]
    assert taken == [0, 1]
    assert list(parts) == [[2, 3], [4]]
    assert list(portions([], 2)) == []


def test_a_draft_is_what_a_worker_reads() -> None:
    assert envelope.decode(payload(["é"]).encode())["args"] == ["é"]
