"""Failpoints: what the environment may say, and what then happens where."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pyworkers import failpoints
from pyworkers.failpoints import FailpointError, Failpoints, Point, parse


def test_nothing_is_armed_by_default() -> None:
    assert failpoints.hit is failpoints._never


def test_the_environment_says_where_what_when_and_how_often() -> None:
    assert parse("before_settle=kill@3, job_end=sleep:0.5*2,job_start=raise,mid_frame=stop@1*1") == {
        "before_settle": Point("before_settle", "kill", nth=3),
        "job_end": Point("job_end", "sleep", 0.5, times=2),
        "job_start": Point("job_start", "raise"),
        "mid_frame": Point("mid_frame", "stop", nth=1, times=1),
    }


@pytest.mark.parametrize(
    "text", ["before_settle", "nowhere=kill", "job_end=explode", "job_end=sleep", "=kill"]
)
def test_what_is_no_failpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not PLACE=ACTION"):
        parse(text)


def test_a_point_fires_at_its_passing_alone_and_says_so_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "fired"
    before = time.time()
    armed = Failpoints({"job_end": Point("job_end", "raise", nth=2)}, str(log))
    armed.hit("job_start")
    armed.hit("job_end")
    assert not log.exists()
    with pytest.raises(FailpointError, match="job_end"):
        armed.hit("job_end")
    armed.hit("job_end")
    [[place, action, pid, moment]] = [line.split() for line in log.read_text().splitlines()]
    assert (place, action, int(pid)) == ("job_end", "raise", os.getpid())
    assert before <= float(moment) <= time.time()


def test_the_file_counts_for_all_processes(tmp_path: Path) -> None:
    points = {"job_end": Point("job_end", "raise", times=1)}
    first, second = (Failpoints(points, str(tmp_path / "fired")) for _ in range(2))
    with pytest.raises(FailpointError):
        first.hit("job_end")
    second.hit("job_end")
    first.hit("job_end")
