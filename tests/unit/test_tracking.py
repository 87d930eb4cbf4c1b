"""Tracking without Redis: the rule, what is stored, and the test support."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pyworkers import Worker, current_message
from pyworkers.client import Client
from pyworkers.errors import (
    BadArgumentError,
    BadResultError,
    JobFailedError,
    ResultTimeout,
    UntrackedJobError,
)
from pyworkers.protocol import effects
from pyworkers.protocol.effects import Announce, DeleteKey, StoreFields
from pyworkers.protocol.flow import track
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of, effects_of_start
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.status import (
    FIELDS,
    UNKNOWN,
    JobState,
    JobStatus,
    Progress,
    pack_answer,
    read_answer,
    read_status,
)
from pyworkers.testing import fake, inline
from pyworkers.worker.progress import ProgressNotes

NOW = 1_795_225_197.5


def ended(ending: Ending, **changes: Any) -> Ended:
    data = {"jid": "j1", "track": 60, **changes.pop("data", {})}
    return Ended(ending, data, changes.pop("jid", "j1"), "q", "Any", NOW, **changes)


def stored(found: StoreFields) -> dict[str, str]:
    fields: dict[str, str] = json.loads(found.fields)
    return fields


@pytest.mark.parametrize(
    ("ending", "state", "keep_s"),
    [
        (Ending.DONE, "done", 60),
        (Ending.RETRY, "retrying", track.ALIVE_S),
        (Ending.DEAD, "dead", 60),
        (Ending.DISCARDED, "failed", 60),
        (Ending.CANCELLED, "cancelled", 60),
        (Ending.EXPIRED, "expired", 60),
        (Ending.DELETED, "cancelled", 60),
        (Ending.REPLACED, "cancelled", 60),
        (Ending.PUT_OFF, "scheduled", track.ALIVE_S),
        (Ending.GIVEN_BACK, "waiting", track.ALIVE_S),
    ],
)
def test_each_end_has_its_state_and_final_ones_an_answer(ending: Ending, state: str, keep_s: int) -> None:
    status, *rest = effects_of(ended(ending, result=b"[7]"))
    assert isinstance(status, StoreFields)
    assert (status.key, stored(status)["state"], status.ttl_s) == ("job:j1", state, keep_s)
    assert len(rest) == ending.final
    for answer in rest:
        assert isinstance(answer, Announce)
        assert (answer.key, answer.ttl_s) == ("result:j1", 60)
        assert read_answer(answer.value).result == ([7] if state == "done" else None)


def test_a_failure_is_counted_and_named() -> None:
    status, *_ = effects_of(
        ended(Ending.RETRY, data={"retry_count": 2}, error_class="ValueError", error_message="x" * 5000)
    )
    assert isinstance(status, StoreFields)
    fields = stored(status)
    assert (fields["attempt"], fields["finished_at"]) == ("4", repr(NOW))
    assert fields["error"] == "ValueError: " + "x" * 1988


@pytest.mark.parametrize("value", [None, False, 0, -1, 0.0, math.nan])
def test_a_job_without_a_time_is_not_tracked(value: object) -> None:
    assert effects_of(ended(Ending.DONE, data={"track": value})) == ()


@pytest.mark.parametrize(
    ("value", "keep_s"),
    [(7, 7), (7.9, 7), (0.1, 1), ("x", 3600), (True, 3600), ([1], 3600), (1e30, 10**9), (math.inf, 10**9)],
)
def test_any_other_value_of_another_producer_has_a_meaning(value: object, keep_s: int) -> None:
    status, _ = effects_of(ended(Ending.DONE, data={"track": value}))
    assert isinstance(status, StoreFields)
    assert status.ttl_s == keep_s


@pytest.mark.parametrize("jid", ["", "x" * 257, "a\nb", "\ud800"])
def test_an_id_that_is_no_part_of_a_key_is_not_tracked(jid: str) -> None:
    assert effects_of(ended(Ending.DONE, jid=jid)) == ()
    assert effects_of_start(JobStart({"track": 60}, jid, "q", 1, NOW)) == ()
    assert track.entered_s(jid, NOW, None) == 0


def test_a_retried_job_drops_the_answer_of_its_death() -> None:
    status, *rest = effects_of_start(JobStart({"track": 60}, "j1", "q", 3, NOW))
    assert isinstance(status, StoreFields)
    assert stored(status) == {
        "state": "running", "queue": "q", "attempt": "3", "started_at": repr(NOW),
    }  # fmt: skip
    assert rest == [DeleteKey("result:j1")]
    assert len(effects_of_start(JobStart({"track": 60}, "j1", "q", 0, NOW))) == 1


def test_a_scheduled_job_is_known_until_long_after_its_time() -> None:
    assert track.entered_s("j1", NOW, NOW + 86_400 * 365) == track.ALIVE_S + 86_400 * 365


def test_all_of_it_survives_the_pipe() -> None:
    found = effects_of(ended(Ending.DEAD, error_class="Ä", error_message="\ud800 lone"))
    assert effects.unpack(effects.pack(found)) == found
    status, answer = found
    assert isinstance(status, StoreFields)
    assert isinstance(answer, Announce)
    assert stored(status)["error"] == "Ä: ? lone"
    assert read_answer(answer.value).error_class == "Ä"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, b"null"),
        ("ä", '"ä"'.encode()),
        ((1, [2.5]), b"[1,[2.5]]"),
        ({"a": None}, b'{"a":null}'),
        (True, b"true"),
    ],
)
def test_a_result_is_kept_as_json(value: object, text: bytes) -> None:
    assert track.encode_result(value) == text


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1, 2}, "result is of type set"),
        ({"a": [b"x"]}, r"result\['a'\]\[0\] is of type bytes"),
        ({1: 2}, "result has the key 1; JSON keys are strings"),
        (math.nan, "result is nan"),
        ("\ud800", "result holds a lone surrogate"),
        ("x" * track.MAX_RESULT_BYTES, "the result has 4194306 bytes; the limit is 4194304"),
    ],
)
def test_a_result_that_json_does_not_carry_is_named(value: object, message: str) -> None:
    with pytest.raises(BadResultError, match=message):
        track.encode_result(value)


@pytest.mark.parametrize(
    "values",
    [
        [None] * 7,
        [b"flying"] + [None] * 6,
        [b"\xff"] * 7,
    ],
)
def test_a_foreign_status_is_unknown(values: list[bytes | None]) -> None:
    assert read_status(values) == UNKNOWN


def test_foreign_fields_count_as_missing() -> None:
    assert len(FIELDS) == 7
    found = read_status([b"running", b"q", b"-1", b"[1,2,3,4,5]", b"soon", b"nan", b""])
    assert found == JobStatus(JobState.RUNNING, "q")
    assert read_status([b"done", None, b"2", b'[3,null,"x"]', b"1.5", b"2", None]) == JobStatus(
        JobState.DONE, "", 2, Progress(3, None, "x"), 1.5, 2.0
    )


def test_an_answer_with_the_largest_result_is_read_again() -> None:
    packed = pack_answer(JobState.DONE, b'"' + b"x" * 1000 + b'"', "", "")
    assert read_answer(packed).result == "x" * 1000
    with pytest.raises(ValueError, match="JSON object"):
        read_answer(b"[]")


@pytest.mark.parametrize(
    "arguments", [("1",), (math.nan,), (1, math.inf), (True,), (1, 2, 3), (1, 2, "\ud800"), (None,)]
)
def test_a_progress_that_is_no_number_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(BadArgumentError):
        Progress(*arguments)


def test_at_most_four_progresses_a_second_are_noted_and_the_last_one_is_kept() -> None:
    noted: list[object] = []
    now = [100.0]
    notes = ProgressNotes("j1", noted.append, lambda: now[0])
    for step in range(100):
        notes.report(Progress(step))
        now[0] += 0.025
    assert len(noted) == 10
    assert notes.rest() == [track.progressed("j1", Progress(99))]
    now[0] += 1
    notes.report(Progress(100))
    assert (len(noted), notes.rest()) == (11, [])


worker = Worker()


@worker.job(queue="q", track=60)
def tracked(what: str) -> object:
    current_message().progress(1, 2, "half")
    if what == "fail":
        raise ValueError("it is broken")
    return [what]


@worker.job(queue="q", retry=False)
def untracked() -> object:
    current_message().progress(1)
    return {1, 2}


def test_fake_knows_status_and_result() -> None:
    with fake() as jobs:
        jid, later = tracked.enqueue("a"), tracked.enqueue_in(60, "b")
        assert worker.status(jid) == JobStatus(JobState.WAITING, "q")
        assert worker.status(later).state == "scheduled"
        with pytest.raises(ResultTimeout):
            worker.result(jid)
        jobs.drain(scheduled=False)
        assert worker.result(jid) == ["a"]
        assert worker.status(jid).progress == Progress(1, 2, "half")
        assert jobs.status(jid).state == "done"
        failing = tracked.options(retry=False).enqueue("fail")
        with pytest.raises(ValueError, match="broken"):
            jobs.drain(scheduled=False)
        with pytest.raises(JobFailedError, match="is failed: ValueError: it is broken"):
            jobs.result(failing)
        plain = untracked.enqueue()
        jobs.drain(scheduled=False)
        with pytest.raises(UntrackedJobError):
            worker.result(plain)


def test_what_fake_keeps_expires_as_in_redis() -> None:
    with fake() as jobs:
        jid = tracked.options(track=3600, history=True).enqueue("a")
        waiting = tracked.enqueue_in(2 * 86_400, "b")
        jobs.drain(scheduled=False)
        jobs.travel(minutes=59)
        assert (worker.result(jid), worker.status(jid).state) == (["a"], "done")
        assert worker.history(jid) is not None
        jobs.travel(minutes=2)
        assert worker.status(jid) == UNKNOWN
        assert worker.history(jid) is None
        with pytest.raises(UntrackedJobError):
            worker.result(jid)
        # That of a job which has not ended: 30 days longer than it waits.
        jobs.travel(days=1)
        assert worker.status(waiting).state == "scheduled"


def test_inline_knows_status_and_result() -> None:
    with inline():
        assert worker.result(tracked.enqueue("a")) == ["a"]
        assert Client("redis://127.0.0.1:1").status("other") == UNKNOWN


@pytest.mark.parametrize("value", [0, -1, "60", math.nan, 1e12])
def test_a_wrong_time_is_refused(value: Any) -> None:
    with fake(), pytest.raises(BadArgumentError, match="track must be seconds above 0"):
        tracked.options(track=value)


@pytest.mark.parametrize("jid", ["", 7, None, "a\n"])
def test_what_is_no_id_is_refused(jid: Any) -> None:
    with pytest.raises(BadArgumentError, match="a jid is a text"):
        worker.status(jid)


@pytest.mark.parametrize("timeout", [-1, "1", math.nan, True])
def test_what_is_no_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(BadArgumentError, match="timeout must be seconds"):
        worker.result("j1", timeout)
