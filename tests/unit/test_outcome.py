"""Outcomes: values that survive the pipe."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.protocol.effects import DeleteKey
from pyworkers.protocol.flow.ending import Ending, ending_of
from pyworkers.protocol.flow.plans import GONE
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Loss, Outcome, Report, Reports, done_member

outcomes = st.builds(
    Outcome,
    fate=st.sampled_from(Fate),
    at=st.floats(allow_nan=False),
    payload=st.binary(max_size=20),
    failed=st.booleans(),
    crashed=st.booleans(),
)


def test_each_fate_that_is_settled_is_an_end_that_states_and_batches_know() -> None:
    settled = [fate for fate in Fate if fate not in (Fate.NOTE, Fate.ASK, Fate.ANSWER)]
    assert max(settled) < 10, "exchange.lua has a digit for each"
    assert {ending_of(Outcome(fate)).state.final for fate in settled} == {True, False}
    assert {ending.member for ending in Ending} - {"done", "failed", "dead", "replaced", None} <= {*GONE}


@given(
    outcomes.filter(lambda outcome: outcome.fate is not Fate.DONE), st.integers(0, 2**32 - 1), st.booleans()
)
def test_a_report_is_read_as_it_was_written(outcome: Outcome, elapsed_ms: int, retiring: bool) -> None:
    report = Report(outcome, elapsed_ms, retiring)
    assert Report.unpack(report.pack()) == report


@pytest.mark.parametrize("retiring", [False, True])
def test_a_job_that_is_done_reports_so(retiring: bool) -> None:
    assert Report.unpack(Report(DONE, 12, retiring).pack()) == Report(DONE, 12, retiring)


@pytest.mark.parametrize("retiring", [False, True])
@pytest.mark.parametrize("effects", [(), (DeleteKey("k"),)])
def test_a_member_that_is_done_reports_where_its_ids_are(
    effects: tuple[DeleteKey, ...], retiring: bool
) -> None:
    report = Report(done_member(26, 2**32 - 1).with_effects(*effects), 12, retiring)
    assert Report.unpack(report.pack()) == report
    assert len(Report(done_member(26, 180)).pack()) == len(Report(DONE).pack())


def test_equal_reports_of_jobs_that_are_done_are_read_once() -> None:
    reports = Reports([""])
    for outcome, once in ((DONE, True), (done_member(26, 180), True), (Outcome(Fate.RETRY, 5.0), False)):
        data = Report(outcome, 1).pack()
        assert reports.read(data).outcome == outcome
        assert (reports.read(data) is reports.read(data)) is once


def test_a_job_of_two_months_does_not_break_its_report() -> None:
    assert Report.unpack(Report(DONE, 2**40).pack()).elapsed_ms == 2**32 - 1


def test_a_report_names_the_handler_by_its_number() -> None:
    data = Report(DONE, 12, job_class="whatever").pack(2)
    assert Report.unpack(data, ["", "a", "b"]).job_class == "b"
    assert Report.unpack(Report(DONE).pack(), ["", "a", "b"]).job_class == ""
    with pytest.raises(ValueError, match="unknown handler number 2"):
        Report.unpack(data, ["", "a"])


def test_error_texts_stay_in_the_worker() -> None:
    outcome = Outcome(Fate.RETRY, 5.0, b"x", failed=True, error_class="E", error_message="m")
    assert Report.unpack(Report(outcome).pack()).outcome == Outcome(Fate.RETRY, 5.0, b"x", failed=True)


@pytest.mark.parametrize(
    ("outcome", "final"),
    [
        (Outcome(Fate.DEAD, failed=True), True),
        (Outcome(Fate.DISCARD, failed=True), True),
        (Outcome(Fate.DISCARD), False),
        (Outcome(Fate.RETRY, failed=True), False),
        (DONE, False),
        (REQUEUE, False),
    ],
)
def test_final_is_a_failure_that_is_not_tried_again(outcome: Outcome, final: bool) -> None:
    assert outcome.final is final


@given(st.binary(max_size=20), st.text("aé :\n\0", max_size=9), st.sampled_from((Fate.RETRY, Fate.DEAD)))
def test_a_loss_is_read_as_it_was_written(raw: bytes, text: str, fate: Fate) -> None:
    outcome = Outcome(
        fate, 1.5, raw[:7], failed=True, crashed=True, error_class="WorkerLost", error_message=text
    )
    loss = Loss(raw, text, outcome)
    assert Loss.unpack(loss.pack()) == loss
