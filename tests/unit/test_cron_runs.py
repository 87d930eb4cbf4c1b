"""The runs of cron entries: which facts each stage of a job adds, and what is read of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyworkers.protocol.cron import CronEntry, job_of
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect, NoteRun
from pyworkers.protocol.envelope import decode
from pyworkers.protocol.flow import track
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.rules import effects_of, effects_of_start
from pyworkers.protocol.flow.runs import CronRun, read_runs
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.status import JobState

ENTRY = CronEntry("nightly", "@daily", "mail", "Sweep")
ABOUT = {"cron": {"name": "nightly", "slot": 60}}


def facts(*effects: Effect) -> dict[str, str]:
    (effect,) = effects
    assert isinstance(effect, NoteRun)
    assert (effect.key, effect.run) == ("cron-runs:nightly", "60 j1")
    found: dict[str, str] = json.loads(effect.facts)
    return found


def ended(ending: Ending, data: Any = None, jid: str = "j1", **about: Any) -> tuple[Effect, ...]:
    return effects_of(Ended(ending, ABOUT if data is None else data, jid, "mail", "Sweep", 90.5, **about))


def run_of(job: PushedJob) -> NoteRun:
    assert job.conditions is not None
    assert job.conditions.run is not None
    return job.conditions.run


def test_the_job_of_a_slot_notes_its_run_with_the_push() -> None:
    job = job_of(ENTRY, 60, 61.0, "j1")
    assert facts(run_of(job)) == {"state": "waiting", "queue": "mail"}
    triggered = job_of(ENTRY, 60, 61.0, "j1", triggered=True)
    assert facts(run_of(triggered))["triggered"] == "1"
    assert decode(triggered.payload)["cron"] == {"name": "nightly", "slot": 60, "triggered": True}


def test_the_conditions_of_its_options_stay() -> None:
    job = job_of(CronEntry("nightly", "@daily", "mail", "Sweep", options={"track": 60}), 60, 61.0, "j1")
    assert run_of(job).key == "cron-runs:nightly"
    assert job.conditions is not None
    assert job.conditions.status_s == track.ALIVE_S


def test_the_stages_of_a_run() -> None:
    assert facts(*effects_of_start(JobStart(ABOUT, "j1", "mail", 0, 70.25))) == {
        "state": "running", "queue": "mail", "started_at": "70.25", "finished_at": "",
    }  # fmt: skip
    failed = facts(*ended(Ending.RETRY, error_class="ValueError", error_message="no \ud800"))
    assert failed == {
        "state": "retrying",
        "queue": "mail",
        "finished_at": "90.5",
        "error": "ValueError: no ?",
    }
    assert facts(*ended(Ending.DONE)) == {
        "state": "done",
        "queue": "mail",
        "finished_at": "90.5",
        "error": "",
    }
    assert facts(*ended(Ending.GIVEN_BACK)) == {"state": "waiting", "queue": "mail"}
    assert facts(*ended(Ending.PUT_OFF)) == {"state": "scheduled", "queue": "mail"}


@pytest.mark.parametrize(
    "about",
    [None, 7, "x", [], {}, {"name": "a"}, {"name": 5, "slot": 5}, {"name": "a", "slot": "5"},
     {"name": "a", "slot": True}, {"name": "a", "slot": -1}, {"name": "a", "slot": 10**400},
     {"name": "a\n", "slot": 5}, {"name": "\ud800", "slot": 5}, {"name": "a" * 1001, "slot": 5}],
)  # fmt: skip
def test_a_field_of_another_program_has_no_effect(about: object) -> None:
    assert ended(Ending.DONE, {"cron": about}) == ()
    assert effects_of_start(JobStart({"cron": about}, "j1", "mail", 0, 1.0)) == ()


@pytest.mark.parametrize("jid", ["", "a\nb", "j" * 257])
def test_a_job_whose_id_cannot_be_kept_has_no_run(jid: str) -> None:
    assert ended(Ending.DONE, jid=jid) == ()


def test_runs_are_read_with_the_latest_slot_first() -> None:
    stored = {
        b"9 a": b'{"state":"done","started_at":"5.5","finished_at":"7.0","error":"old","queue":"q"}',
        b"10 b": b'{"state":"running","started_at":"8.0","finished_at":"","triggered":"1"}',
        b"11 c": b'{"state":"dead","started_at":"nan","finished_at":"x","error":"ValueError: no"}',
        b"12 d": b'{"state":"retrying","started_at":"8.0","finished_at":"7.5"}',
    }
    late, dead, running, done = read_runs(stored)
    assert (late.jid, late.duration_s) == ("d", 0.0)
    assert dead == CronRun(11, "c", JobState.DEAD, error="ValueError: no")
    assert running == CronRun(10, "b", JobState.RUNNING, True, "", 8.0)
    assert (done.error, done.duration_s, done.as_dict()["duration"]) == ("", 1.5, 1.5)
    assert read_runs(stored, 1) == [late]
