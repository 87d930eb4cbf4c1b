"""The history of a tracked job without Redis: the rule, what is read back, and the test support."""

from __future__ import annotations

import asyncio
import json

import pytest

from pyworkers import AsyncClient, BadArgumentError, JobHistory, JobRun, Worker
from pyworkers.client import Client
from pyworkers.protocol.effects import StoreFields
from pyworkers.protocol.flow import history
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.history import read_history
from pyworkers.protocol.flow.rules import effects_of, effects_of_start
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.status import Answer, JobState
from pyworkers.testing import fake

NOW = 1_795_225_197.5
ASKED = {"track": 60, "history": True}


def fields_of(effects: object) -> dict[str, object]:
    """The fields with a number that the effects write, from JSON."""
    return {
        name: json.loads(text)
        for effect in effects  # type: ignore[attr-defined]
        if isinstance(effect, StoreFields)
        for name, text in json.loads(effect.fields).items()
        if ":" in name
    }


@pytest.mark.parametrize(
    ("counts", "number"),
    [({}, 0), ({"retry_count": 0}, 1), ({"crash_count": 2}, 2), ({"retry_count": 1, "crash_count": 1}, 3)],
)
def test_a_run_has_the_number_of_the_failures_and_crashes_before_it(
    counts: dict[str, int], number: int
) -> None:
    data = ASKED | counts
    begun = effects_of_start(JobStart(data, "j1", "q", 0, NOW, lambda: "host:7"))
    assert fields_of(begun) == {f"run:{number}": [NOW, "host:7"]}
    ended = effects_of(Ended(Ending.RETRY, data, "j1", "q", "Any", NOW, "ValueError", "no", traceback="at 1"))
    assert fields_of(ended) == {f"error:{number}": ["ValueError", "no", "at 1"]}


@pytest.mark.parametrize("data", [{"track": 60}, {"track": 60, "history": False}, {"history": True}])
def test_without_the_option_or_without_track_nothing_is_kept(data: dict[str, object]) -> None:
    assert fields_of(effects_of_start(JobStart(data, "j1", "q", 0, NOW))) == {}
    assert fields_of(effects_of(Ended(Ending.DEAD, data, "j1", "q", "Any", NOW, "ValueError", "no"))) == {}


@pytest.mark.parametrize("ending", [Ending.DONE, Ending.GIVEN_BACK, Ending.PUT_OFF, Ending.DELETED])
def test_an_end_without_an_error_adds_nothing(ending: Ending) -> None:
    assert fields_of(effects_of(Ended(ending, ASKED, "j1", "q", "Any", NOW))) == {}


def test_of_a_long_traceback_the_end_is_kept_as_long_as_the_status() -> None:
    long = "x" * history.MAX_TRACEBACK + "the end \ud800"
    status, _, kept = effects_of(
        Ended(Ending.DEAD, ASKED, "j1", "q", "Any", NOW, "E", "m" * 5000, traceback=long)
    )
    assert isinstance(status, StoreFields)
    assert isinstance(kept, StoreFields)
    assert (kept.key, kept.ttl_s) == (status.key, status.ttl_s) == ("job:j1", 60)
    _, message, text = json.loads(json.loads(kept.fields)["error:0"])
    assert (len(message), len(text), text[-9:]) == (2000, history.MAX_TRACEBACK, "the end ?")


@pytest.mark.parametrize("jid", ["", "x" * 257, "a\nb"])
def test_an_id_that_is_no_part_of_a_key_has_no_history(jid: str) -> None:
    assert fields_of(effects_of_start(JobStart(ASKED, jid, "q", 1, NOW))) == {}


def test_invalid_fields_count_as_missing() -> None:
    stored = {
        b"job": b'{"class":"Any"}',
        b"state": b"retrying",
        b"run:0": b'[1.5,"host:7"]',
        b"run:2": b"[NaN]",
        b"error:1": b'["E","m"]',
        b"error:2": b'["E","m","t"]',
        b"run:x": b"[1,2]",
        b"run:99999999999999999999": b"[1,2]",
    }
    found = read_history("j1", stored, None)
    assert found is not None
    assert found.status.state is JobState.RETRYING
    assert found.runs == (
        JobRun(0, 1.5, "host:7"),
        JobRun(1),
        JobRun(2, None, "", "E", "m", "t"),
    )


@pytest.mark.parametrize("stored", [{}, {b"state": b"done"}, {b"job": b"[]"}, {b"job": b"\xff"}])
def test_a_job_without_an_envelope_has_no_history(stored: dict[bytes, bytes]) -> None:
    assert read_history("j1", stored, Answer(JobState.DONE, 7)) is None


def test_a_history_is_json() -> None:
    found = read_history("j1", {b"job": b'{"class":"Any"}', b"run:0": b'[1.5,"host:7"]'}, None)
    assert found is not None
    assert json.loads(json.dumps(found.as_dict()))["runs"][0]["worker"] == "host:7"


def test_it_is_refused_without_track_and_for_another_type() -> None:
    with pytest.raises(BadArgumentError, match="history has no effect without track"):
        Client().enqueue("q", "C", history=True)
    with pytest.raises(BadArgumentError, match="history must be True or False, not 7"):
        Client().enqueue("q", "C", track=60, history=7)  # type: ignore[arg-type]


def test_fake_keeps_the_history() -> None:
    worker = Worker()

    @worker.job(track=60, history=True)
    def work(number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return number

    @worker.job(track=60)
    def plain() -> None: ...

    with fake() as queue:
        done, failed, other = work.enqueue(7), work.enqueue(-1), plain.enqueue()
        waiting = worker.history(done)
        with pytest.raises(ValueError, match="negative"):
            queue.drain()
        ended, broken = worker.history(done), worker.history(failed)
        assert worker.history(other) is None
        assert asyncio.run(read(worker, done)) == ended
    assert waiting is not None
    assert (waiting.status.state, waiting.job["args"], waiting.runs) == (JobState.WAITING, [7], ())
    assert ended is not None
    assert (ended.result, [run.error_class for run in ended.runs]) == (7, [""])
    assert broken is not None
    [run] = broken.runs
    assert (run.error_class, run.error) == ("ValueError", "negative")
    assert run.traceback.startswith("Traceback (most recent call last):\n")
    assert "test_history.py" in run.traceback
    assert run.traceback.endswith("ValueError: negative\n")


async def read(worker: Worker, jid: str) -> JobHistory | None:
    async with AsyncClient.of(worker) as client:
        return await client.history(jid)
