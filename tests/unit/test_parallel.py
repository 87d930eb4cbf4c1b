"""The tests in several processes: each runs once, and a process that dies fails its test alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.parallel import Shares, by_module
from tests.helpers.support import ROOT
from tests.integrations.test_pytest import ALONE

TESTS = """
import os, pathlib, signal
import pytest

RAN = pathlib.Path(__file__).parent / "ran"
PARENT = os.getpid()

@pytest.fixture(scope="session", autouse=True)
def _whole_session():
    (RAN / f"began-{os.getpid()}").touch()
    yield
    (RAN / f"ended-{os.getpid()}").touch()

def died():
    (RAN / f"died-{os.getpid()}").touch()

@pytest.mark.parametrize("number", range(40))
def test_passes(number, tmp_path):
    assert os.getpid() != PARENT
    (RAN / f"{number}.{os.getpid()}").touch()
    (tmp_path / "mine").mkdir()

def test_fails():
    print("what it printed")
    assert 1 + 1 == 3

@pytest.mark.skip(reason="not here")
def test_is_skipped():
    pass

def test_kills_its_process():
    died()
    os.kill(os.getpid(), signal.SIGKILL)

def test_exits():
    died()
    os._exit(0)

@pytest.fixture
def broken():
    yield
    raise ValueError("at the end")

def test_whose_fixture_breaks(broken):
    pass
"""


def run(folder: Path, *options: str) -> str:
    (folder / "ran").mkdir()
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", *ALONE, "-p", "tests.helpers.parallel"]
    command += [f"--rootdir={folder}", "-q", "-rfEs", *options, str(folder)]
    wide = os.environ | {"COLUMNS": "300"}
    return subprocess.run(command, cwd=ROOT, env=wide, capture_output=True, text=True).stdout


def test_each_test_runs_once_and_a_lost_process_fails_one(tmp_path: Path) -> None:
    output = run(tmp_path, "--processes=3")
    assert re.search("3 failed, 41 passed, 1 skipped, 1 error in", output), output
    assert "SKIPPED" in output and "not here" in output
    assert re.search(r"FAILED \S+::test_fails - assert \(1 \+ 1\) == 3", output), output
    assert "what it printed" in output
    for name, code in (("kills_its_process", -9), ("exits", 0)):
        lost = f"the process of this test ended with exit code {code}"
        assert re.search(rf"FAILED \S+::test_{name} - {lost}", output), output
    assert re.search(r"ERROR \S+::test_whose_fixture_breaks - ValueError: at the end", output), output
    ran = [path.name.split(".") for path in (tmp_path / "ran").glob("*.*")]
    assert sorted(int(number) for number, _ in ran) == list(range(40))
    assert len({process for _, process in ran}) > 1
    began, ended, died = (processes(tmp_path, what) for what in ("began", "ended", "died"))
    assert len(died) == 2 and began - died == ended


def processes(folder: Path, what: str) -> set[str]:
    return {path.name.partition("-")[2] for path in (folder / "ran").glob(f"{what}-*")}


def test_the_first_failure_ends_the_session_if_wanted(tmp_path: Path) -> None:
    output = run(tmp_path, "--processes=2", "-x", "-k", "fails or passes")
    assert "stopping after 1 failures" in output, output


@pytest.mark.parametrize(("tests", "processes"), [(0, 2), (1, 3), (10, 3), (100, 8)])
def test_each_test_is_given_once(tests: int, processes: int) -> None:
    shares = Shares([range(tests)], processes)
    given = [shares.take(number % processes) for number in range(tests)]
    assert sorted(test for test in given if test is not None) == list(range(tests))
    assert [shares.take(process) for process in range(processes)] == [None] * processes


def test_a_process_runs_whole_modules_until_it_takes_the_far_half_of_the_largest_share() -> None:
    shares = Shares([range(3), range(3, 5), range(5, 9)], 2)
    assert [shares.take(process) for process in (0, 1, 1, 1)] == [0, 3, 4, 5]
    assert [shares.take(0) for _ in range(4)] == [1, 2, 7, 8]
    shares.give_back(1, [5])
    assert [shares.take(process) for process in (1, 0, 1)] == [5, 6, None]


def test_modules_with_short_tests_of_the_second_half_are_last() -> None:
    names = ["unit/test_a.py", "web/test_b.py", "web/test_b.py", "store/test_c.py", "system/test_d.py"]
    assert by_module([(Path("tests", name), ()) for name in names]) == [[0], [1, 2], [4], [3]]


def test_modules_that_start_the_same_browser_are_three() -> None:
    names = ["web/test_a.py", "web/test_b.py", "system/test_c.py", *(f"web/test_{n}.py" for n in range(3))]
    fixtures = [("_browser",), ("db", "_browser"), ("db",), ("_browser",), ("_browser",), ("db",)]
    items = [(Path("tests", name), used) for name, used in zip(names, fixtures, strict=True)]
    assert by_module(items) == [[0, 4], [1], [2], [3], [5]]
